"""A training job slows down at night: somebody starts a CPU-hungry program on its machine.

The GPU looks fine on every dashboard; it only gets its work later. Then the program ends.
"""

from __future__ import annotations

from ingero.scenarios.scenario import MS, Live, Phase, Program, Scenario, Story, Work

SCENARIO = Scenario(
    name="incident",
    summary="another program takes a training job's cores for a while",
    finding="cpu-contention",
    story=Story(
        phases=(
            Phase("python3 train.py trains; two workers prepare its batches", 8, host_ns=8 * MS),
            Phase(
                "somebody starts stress-ng on all cores",
                8,
                host_ns=8 * MS,
                batch_wait_ns=3 * MS,
                per_core=2,
                cpu_share=0.99,
            ),
            Phase("stress-ng has ended", 4, host_ns=8 * MS),
        ),
        workers=2,
        neighbours=Program("stress-ng-cpu", "stress-ng --cpu 8", tuple(range(5190, 5198))),
    ),
    live=Live(
        work=Work(host_us=6000, workers=1, item_us=2000),
        seconds=12,
        cores=2,
        neighbours=2,
        between=(4, 9),
        says=(
            (0, "a Python job trains; a worker prepares its batches"),
            (4, "busy-neighbour starts on the cores of the job"),
            (9, "busy-neighbour has ended"),
        ),
    ),
)
