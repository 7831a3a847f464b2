"""Every two seconds the job itself stops to compute its metrics, and the GPU waits."""

from __future__ import annotations

from ingero.scenarios.scenario import MS, SECOND, Live, Phase, Scenario, Story, Work

SCENARIO = Scenario(
    name="periodic-spike",
    summary="a job stops at regular intervals",
    finding="periodic-spike",
    story=Story(
        phases=(
            Phase(
                "python3 train.py trains, and writes its metrics every two seconds",
                18,
                pause_every_ns=2 * SECOND,
                pause_ns=320 * MS,
            ),
        ),
    ),
    live=Live(
        work=Work(pause_every_s=1.5, pause_ms=300),
        seconds=10,
        says=((0, "a Python job trains, and computes its metrics every 1.5 s"),),
    ),
)
