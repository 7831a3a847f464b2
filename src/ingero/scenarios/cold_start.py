"""A job that starts: contexts, code loaded on first use. Slow once, and nothing to fix at night."""

from __future__ import annotations

from ingero.scenarios.scenario import MS, Live, Phase, Scenario, Story, Work

SCENARIO = Scenario(
    name="cold-start",
    summary="a job creates its context and loads its code, then runs well",
    finding="cold-start",
    story=Story(
        phases=(
            Phase(
                "python3 train.py starts: context, then code on first use",
                5,
                context_ns=1100 * MS,
                modules=45,
                module_ns=62 * MS,
                cpu_share=0.31,
            ),
            Phase("python3 train.py trains", 7),
        ),
    ),
    live=Live(
        work=Work(modules=14),
        seconds=10,
        says=((0, "a Python job starts: context, then code, then it trains"),),
        stub={"INGERO_STUB_INIT_MS": "1200", "INGERO_STUB_LOAD_MS": "180"},
    ),
)
