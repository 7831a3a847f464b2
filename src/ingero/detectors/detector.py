"""The shape of a detector: what it looks for, what it needs, what it advises.

`find` is a pure function over the timeline. It yields Evidence (time lost in one
slice) or State (something that is or was so); judge.py makes findings of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.loss import LossPart, Lost, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.model.finding import Fix, Proof, Severity
from ingero.model.words import KINDS
from ingero.units import MOST_CPUS


@dataclass(frozen=True, slots=True)
class Evidence:
    """Time a job lost in one slice."""

    job: Job
    slice: SliceLedger
    ns: int
    causes: tuple[Lost, ...]
    gain_ns: int | None = None  # what can be won, where that is not all of it
    note: str = ""  # a number worth showing, the same for all slices of a finding


@dataclass(frozen=True, slots=True)
class State:
    """Something that is or was so: an error, a fault, a leak, a hang."""

    pid: int
    comm: str
    title: str
    first_ns: int
    last_ns: int
    proofs: tuple[Proof, ...]
    severity: Severity
    tid: int | None = None
    op: str | None = None
    who: tuple[LossPart, ...] = ()
    fixes: tuple[Fix, ...] = ()
    confidence: float = 0.95
    waited_ns: int = 0  # for the GPU, where the state is a wait that does not end


@dataclass(slots=True)
class Case:
    """All evidence of one detector about one job, for its title, proof and advice."""

    job: Job
    timeline: Timeline
    evidence: list[Evidence]
    ns: int
    wall_ns: int
    first_ns: int
    last_ns: int
    who: list[LossPart] = field(default_factory=list)

    @property
    def machine(self) -> tuple[int, ...]:
        """Its cores; how many there are may have been written by anybody."""
        return tuple(range(min(max(self.timeline.facts.cores or 1, 1), MOST_CPUS)))

    @property
    def cpus(self) -> tuple[int, ...]:
        """The cores the job may use; all of the machine where that is not known."""
        machine = self.machine
        known = self.timeline.facts.processes.get(self.job.pid)
        confined = known is not None and 0 < len(known.cpus) < len(machine)  # more: some are not plugged in
        return known.cpus if known and confined else machine

    @property
    def cores(self) -> int:
        return len(self.cpus)

    def covers(self, slices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which slices lie in the finding for the most part: it begins with a row, not with a slice."""
        facts = self.timeline.facts
        middles = facts.origin_ns + slices * facts.slice_ns + facts.slice_ns // 2
        return (middles >= self.first_ns) & (middles < self.last_ns)

    @property
    def span_sql(self) -> str:
        return f"bucket_start_ns >= {self.first_ns} AND bucket_start_ns < {self.last_ns}"

    @property
    def causes(self) -> list[Lost]:
        return [lost for each in self.evidence for lost in each.causes]

    @property
    def main(self) -> Lost | None:
        """The place where most was lost."""
        sums: dict[tuple[int, str], int] = {}
        for lost in self.causes:
            sums[lost.tid, lost.bucket] = sums.get((lost.tid, lost.bucket), 0) + lost.ns
        best = max(sums, key=lambda key: sums[key], default=None)
        return next((lost for lost in self.causes if (lost.tid, lost.bucket) == best), None)

    def steps(self) -> int:
        return sum(self.job.steps(each.slice.number) for each in self.evidence)

    def first_who(self) -> str:
        return f"{self.who[0].comm} (pid {self.who[0].pid})" if self.who else "another process"

    def all_alike(self) -> str:
        """The first, or as many as there are of its name: which of them was first changes with time."""
        alike = {part.pid for part in self.who if part.comm == self.who[0].comm}
        return f"{self.who[0].comm} ({len(alike)} processes)" if len(alike) > 1 else self.first_who()


@dataclass(frozen=True, slots=True)
class LineChoice:
    """Which evidence decides on which line of the program a finding is.

    by      ns, count, bytes: calls of these kinds, by time, number or size;
            kept: allocations that were not freed; last: the last call of these kinds;
            event: the call that the finding's proof names;
            wait: time waited in these buckets; sample: time seen on a core in them;
            loss: either, in the bucket where most of the finding's time was lost;
            spike: what the job did only in its long iterations.
    of      job: all its threads; feeder: the one that feeds the GPU; end: the threads where
            the time was really lost; holder: of the interpreter's lock; culprit: the
            process whose fault it is; crowd: processes that had the cores it waited for.
    says    how the proof begins that names the line; empty: what the thread did when it
            lost most.
    """

    by: str
    says: str = ""
    of: str = "job"
    kinds: tuple[str, ...] = ()  # of calls
    named: str = ""  # only operations with this in their name, a regular expression
    buckets: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()  # waits inside calls of these kinds count only where there are no others
    collecting: bool = False  # only samples in which the garbage collector was at work
    gil: bool = False  # only waits for the interpreter's lock
    along: bool = False  # only where the feeding thread waited for another one


# Where a thread stood when it lost the time, and where the feeding thread waits for that one.
LOST = LineChoice("loss", of="end")
WAITS_FOR = LineChoice(
    "wait", "the feeding thread waits", of="feeder", buckets=("peer_wait", "lock_wait"), along=True
)
# Most of what it waits for a core inside a wait for the GPU, the GPU's own work hides.
LOST_CORE = (
    LineChoice("wait", "loses its core", of="end", buckets=("runqueue",), outside=("sync",)),
    LineChoice("sample", "computes", of="end"),
)


def no_evidence(timeline: Timeline) -> Iterator[Evidence | State]:
    yield from ()


def nothing_more(case: Case) -> list[Proof]:
    return []


def no_advice(case: Case) -> list[Fix]:
    return []


@dataclass(frozen=True, slots=True)
class Detector:
    """One problem."""

    name: str
    needs: frozenset[str]  # sources; without one of them it is not watched, never "fine"
    find: Callable[[Timeline], Iterator[Evidence | State]] = no_evidence
    either: frozenset[str] = frozenset()  # sources of which one is enough; all missing: not watched
    headline: Callable[[Case], str] | None = None  # with names and numbers; else the title
    prove: Callable[[Case], list[Proof]] = nothing_more
    advise: Callable[[Case], list[Fix]] = no_advice
    confidence: float = 0.9
    unwatched: str = ""  # why nobody looks for it yet
    rest: bool = False  # nobody looks for it: it is what no other kind names (verdict.py)
    severity: str = "by wall time lost"
    least_share: float = 0.03
    lines: tuple[LineChoice, ...] = ()  # the first that tells a line decides; the others are further proof

    @property
    def title(self) -> str:
        return KINDS[self.name]
