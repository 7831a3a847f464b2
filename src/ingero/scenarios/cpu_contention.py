"""One greedy program: a backup is compressed on every core, and does not end."""

from __future__ import annotations

from ingero.scenarios.scenario import MS, Live, Phase, Program, Scenario, Story, Work

SCENARIO = Scenario(
    name="cpu-contention",
    summary="another program takes the job's core, and stays",
    finding="cpu-contention",
    story=Story(
        phases=(
            Phase("python3 train.py trains", 6, host_ns=7 * MS),
            Phase(
                "xz begins to compress a backup on all cores", 12, host_ns=7 * MS, per_core=1, cpu_share=0.98
            ),
        ),
        neighbours=Program("xz", "xz -T0 -9 /backup/images.tar", (6120,)),
    ),
    live=Live(
        work=Work(host_us=6000),
        seconds=10,
        cores=1,
        neighbours=2,
        between=(4, 10),
        says=((0, "a Python job trains"), (4, "busy-neighbour starts on its core")),
    ),
)
