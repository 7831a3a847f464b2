"""Batches copied from ordinary memory: the CPU moves every byte before the bus does."""

from __future__ import annotations

from ingero.scenarios.scenario import MS, Live, Phase, Scenario, Story, Work

SCENARIO = Scenario(
    name="memcpy-bottleneck",
    summary="a job copies its batches from pageable memory",
    finding="copy-bound",
    story=Story(
        phases=(
            Phase(
                "python3 train.py trains on large batches in ordinary, pageable memory",
                14,
                host_ns=2 * MS,
                copy_bytes=96 << 20,
                pageable_gbps=5.2,
                gpu_ns=14 * MS,
                cpu_share=0.38,
            ),
        ),
    ),
    live=Live(
        work=Work(batch_bytes=96 << 20, pageable=True, launches=30),
        seconds=8,
        says=((0, "a Python job trains on large batches in pageable memory"),),
    ),
)
