"""Slowdown: steps take longer than before, and no other kind explains most of the extra time.

Shows as   fewer steps a second than the job itself made in the same recording.
Proof      where the time of a slow step went, compared with that of a usual one: what grew.
Not this   a step with more work for a GPU that is as busy as before; what another kind
           explains: then that one is told.
Blind to   a pace that was never better while it was watched; jobs without any call that is
           counted exactly; what a job does on purpose (a phase with more host work, a checkpoint of
           some seconds and a pause are told like any fall, here or by another kind); a server that waits
           for something of its own while clients wait that are on another machine (it looks like one
           that waits to be asked).
"""

from __future__ import annotations

from ingero.detectors import proofs
from ingero.detectors.detector import LOST, WAITS_FOR, Case, Detector
from ingero.model.finding import Fix
from ingero.model.words import BUCKETS


def headline(case: Case) -> str:
    what = "waits" if holds_up(case) or case.main is None else BUCKETS[case.main.bucket].does
    more = ", while others wait for its answer" if holds_up(case) else ""
    return f"{case.job.comm} became slower: it {what} longer in every step{more}"


def holds_up(case: Case) -> bool:
    """A server that waits by its own choice, though it is asked."""
    return case.main is not None and case.main.whose == "asked"


def advise(case: Case) -> list[Fix]:
    held = Fix("Answer the requests that are there: see what it waits for meanwhile.")
    return [
        *([held] if holds_up(case) else []),
        Fix(
            "See what the thread does there, and what changed at that time.",
            f"ingero explain --per-process --pid {case.job.pid}",
        ),
    ]


DETECTOR = Detector(
    name="slowdown",
    needs=frozenset({"calls", "sched"}),
    rest=True,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
    confidence=0.7,
    lines=(LOST, WAITS_FOR),
)
