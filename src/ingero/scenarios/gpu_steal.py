"""Somebody else's process appears on the same card, and the two take turns."""

from __future__ import annotations

from ingero.scenarios.scenario import MS, Live, Phase, Program, Scenario, Story, Work

SCENARIO = Scenario(
    name="gpu-steal",
    summary="a second process appears on the job's GPU",
    finding="gpu-shared",
    story=Story(
        phases=(
            Phase("python3 train.py trains, alone on its GPU", 6),
            Phase("a notebook begins to compute on the same GPU", 8, gpu_ns=43 * MS),
            Phase("the notebook has ended", 4),
        ),
        rival=Program("jupyter-kernel", "jupyter-kernel --KernelManager.kernel_name=python3", (7020,)),
        rival_phases={1: Phase("", 8, host_ns=MS, launches=24, gpu_ns=46 * MS)},
    ),
    live=Live(
        work=Work(),
        seconds=11,
        rival=Work(name="second-job", launches=20, kernel_us=1000, host_us=500),
        between=(3, 9),
        says=(
            (0, "a Python job trains, alone on its GPU"),
            (3, "second-job starts on the same GPU"),
            (9, "second-job has ended"),
        ),
    ),
)
