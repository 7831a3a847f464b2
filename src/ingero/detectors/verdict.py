"""The verdict: where the extra time of a step goes, and whose name it bears.

Two questions about every job. Did its pace fall? Then the account of the slow time is
compared with that of the usual time, per step, and the rows that grew are the cause. Is its
card idle though there is work? Then the rows that keep the card idle are. Either way
every nanosecond told comes from the same rows: title, effect, causes, culprits, line and
gain cannot contradict each other. What no detector has a name for is told as slowdown or
gpu-idle.

Three witnesses: the pace, the card's own word, and what the chain did that the GPU did
not hide. A pace that fell while the card is as busy as before is more work in a step,
which is no trouble.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from ingero.correlate.account import Account, Accounts, Line, Lines, grown, grown_lines
from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.pace import Stretch
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.bound import bound_of, in_words
from ingero.detectors.names import GPU, NOBODY, ROW_KINDS, UNNAMED, Setting, name_of
from ingero.model.facts import Span
from ingero.model.report import Bound
from ingero.units import SECOND

LEAST_SHARE = 0.03  # of the time: nobody is told of less
LEAST_PART = 0.15  # of the extra time: smaller parts come with the larger ones
LEAST_IDLE_PART = 0.25  # the same of an idle card: work that it did not wait for is in there, too
LEAST_NS = 500_000_000
MOST_SPANS = 100  # that a question to the database is made of
NOISE = 0.02  # of a finding's time: rows that are smaller say nothing
AS_BUSY = 0.10  # that a card's busy share may differ by, and is the same
LEAST_IDLE = 0.10  # of the time: a card that works all the time is idle for some percent of it
IDLE_SHARE = 0.25  # of the time: with less idleness a card counts as kept busy
KEPT_BUSY = 0.90  # of the time: such a card has nothing to complain of
# What freeing memory makes the card do counts as its work, and is none.
DESPITE = frozenset({"alloc-churn"})
WORK_PER_WAIT = 20  # launches: with more in between, the queue is deep enough
OFTENER = 2  # times as many waits in a step as usual
FEEDING = frozenset({"launch", "graph"})
ON_CORE = ("host_cpu", "cuda_cpu", "gpu_wait")
NEEDLESS = frozenset({"io", "gc", "copy", "alloc", "free"})  # work that a step can do without, or elsewhere


@dataclass(frozen=True, slots=True)
class Told:
    """What all findings about one stretch of a job have in common."""

    job: Job
    spans: tuple[Span, ...]
    wall_ns: int
    excess_ns: int
    usual_ns: int | None = None  # a step's
    now_ns: int | None = None
    busy: float | None = None  # the card, meanwhile
    usual_busy: float | None = None

    @property
    def changed(self) -> bool:
        return self.usual_ns is not None

    def covers(self, first_ns: int, last_ns: int) -> int:
        """How much of a stretch lies within."""
        return sum(max(0, min(last_ns, end) - max(first_ns, start)) for start, end in self.spans)


@dataclass(frozen=True, slots=True)
class Named:
    """Rows with one name."""

    told: Told
    kind: str
    rows: tuple[Lost, ...]
    line: Line | None = None

    @property
    def ns(self) -> int:
        return sum(row.ns for row in self.rows)

    def by_slice(self, timeline: Timeline) -> Iterator[tuple[SliceLedger, tuple[Lost, ...]]]:
        """Its rows spread over the slices it lies in."""
        facts, job = timeline.facts, self.told.job
        parts = {
            each.number: self.told.covers(facts.at_ns(each.number), facts.at_ns(each.number + 1))
            for each in job.slices
        }
        most = max(parts.values(), default=0)
        chosen = [each for each in job.slices if parts[each.number] >= 0.5 * most > 0]
        total = sum(parts[each.number] for each in chosen)
        for each in chosen:
            share = parts[each.number] / total
            yield each, tuple(replace(row, ns=int(row.ns * share)) for row in self.rows)


class Verdicts:
    """About all jobs of a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.named: list[Named] = []
        self.busy: dict[int, float] = {}  # by process: the card over its usual time
        self.bound: list[Bound] = []  # what limits each job now
        for job in timeline.jobs:
            if not timeline.facts.partial:
                self._judge(job)

    def replaces(self, kind: str, job: Job, each: SliceLedger) -> bool:
        """Whether what a detector says of a slice by itself is told here, or the card gives it the lie."""
        if kind not in ROW_KINDS:
            return False
        first, last = self._timeline.facts.at_ns(each.number), self._timeline.facts.at_ns(each.number + 1)
        judged = [named.told for named in self.named if named.told.job is job]
        if any(told.covers(first, last) > 0.25 * (last - first) for told in judged):
            return True
        return kind not in DESPITE and self.busy.get(job.pid, 0.0) >= KEPT_BUSY

    def _judge(self, job: Job) -> None:
        usual, slow = self._stretches(job)
        if usual is None:
            return
        cards = self._timeline.cards.of(job.pid)
        busy = [
            self._timeline.facts.busy(cards, each.spans) if cards else None for each in (usual, slow) if each
        ]
        if busy[0] is not None:
            self.busy[job.pid] = busy[0]
        spans = [each.spans for each in (usual, slow) if each]
        accounts = Accounts(self._timeline.facts, self._timeline.family, spans)
        made = accounts.of(job.pid, job.tid)
        now = 1 if slow is not None and slow.last_ns > usual.last_ns else 0
        setting = Setting(self._timeline, job, False, usual.first_ns, usual.last_ns)
        limit = bound_of(setting, made[now], busy[now])
        if limit is not None:
            limit = _with_pace(limit, job, now)
            self.bound.append(msgspec.structs.replace(limit, text=in_words(limit)))
        if slow is not None:
            self.named += self._slower(job, usual, slow, accounts, made, busy)
        self.named += self._idle(job, usual, accounts, made[0], busy[0])

    def _stretches(self, job: Job) -> tuple[Stretch | None, Stretch | None]:
        if job.pace is not None:
            return job.pace.usual, job.pace.slow
        facts = self._timeline.facts
        settled = [each for each in job.slices if not each.cold and not each.ending]
        if not settled:
            return None, None
        spans: list[Span] = []
        for each in settled:  # those next to each other are one: an hour has 1,800
            first, last = facts.at_ns(each.number), facts.at_ns(each.number + 1)
            if spans and spans[-1][1] == first:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
        return Stretch(tuple(spans[:MOST_SPANS]), 0.0, sum(each.wall_ns for each in settled)), None

    # --- the pace fell ---------------------------------------------------------------------

    def _slower(
        self,
        job: Job,
        usual: Stretch,
        slow: Stretch,
        accounts: Accounts,
        made: Sequence[Account],
        busy: Sequence[float | None],
    ) -> list[Named]:
        assert job.pace is not None
        ratio, excess = slow.steps / usual.steps, job.pace.excess_ns
        told = Told(
            job, slow.spans, slow.wall_ns, excess, int(usual.step_ns), int(slow.step_ns), busy[1], busy[0]
        )
        rows = grown(made[0], made[1], ratio, excess)
        per_step = [accounts.waits(number, job.pid) / each.steps for number, each in enumerate((usual, slow))]
        often = per_step[1] >= OFTENER * per_step[0] and _takes_turns(accounts, 1, job)
        setting = Setting(self._timeline, job, often, slow.first_ns, slow.last_ns)
        groups = self._groups(rows, setting)
        if accounts.out_of_memory(1, job.pid):
            groups.pop("alloc-churn", None)
        # Without anybody else on the card, and a card as busy as before, a step has more work.
        if not self._idles_more(told):
            groups.pop(GPU, None)
        else:
            groups.setdefault(UNNAMED, []).extend(groups.pop(GPU, []))
        lines = grown_lines(made[0], made[1], ratio)
        return self._told(told, groups, "slowdown", lines)

    @staticmethod
    def _idles_more(told: Told) -> bool:
        """Whether the card says that it has less to do; without its word waits for it are its work."""
        return told.busy is not None and told.usual_busy is not None and told.busy < told.usual_busy - AS_BUSY

    # --- idle though there is work -------------------------------------------------------

    def _idle(
        self, job: Job, usual: Stretch, accounts: Accounts, account: Account, busy: float | None
    ) -> list[Named]:
        if busy is None or not account.rows:
            return []
        wall = account.wall_ns
        idle = int((1 - busy) * wall)
        often = _takes_turns(accounts, 0, job)
        setting = Setting(self._timeline, job, often, usual.first_ns, usual.last_ns)
        named = [(row, name_of(row, setting)) for row in account.rows]
        chosen = sum(row.ns for row, name in named if name == NOBODY or _chosen(row))
        lost = idle - chosen
        if lost < LEAST_IDLE * wall:
            return []
        keeping = [row for row, name in named if name not in (GPU, NOBODY) and not _chosen(row)]
        rows = exposed(keeping, lost)
        if lost < IDLE_SHARE * wall:  # so much is the way programs are: only what is no work of theirs counts
            rows = [row for row in rows if row.bucket not in ON_CORE or row.what in NEEDLESS]
        if not rows:
            return []
        told = Told(job, usual.spans, wall, sum(row.ns for row in rows), busy=busy)
        lines = grown_lines(Account(()), account, 1.0)
        groups = self._groups(rows, setting)
        if accounts.out_of_memory(0, job.pid):
            groups.pop("alloc-churn", None)
        return self._told(told, groups, "gpu-idle", lines)

    # --- names -----------------------------------------------------------------------------

    def _groups(self, rows: Iterable[Lost], setting: Setting) -> dict[str, list[Lost]]:
        groups: dict[str, list[Lost]] = defaultdict(list)
        for row in rows:
            name = name_of(row, setting)
            if name != NOBODY:
                groups[name].append(row)
        return groups

    def _told(
        self,
        told: Told,
        groups: dict[str, list[Lost]],
        unnamed: str,
        lines: Lines,
    ) -> list[Named]:
        """What is worth saying; what has no name when it is most of it."""
        total = sum(row.ns for rows in groups.values() for row in rows)
        if groups.pop("graph-trouble", None):  # what a capture launches is part of capturing
            groups.pop("launch-bound", None)
        found = []
        for kind, rows in groups.items():
            ns = sum(row.ns for row in rows)
            part = LEAST_PART if told.changed else LEAST_IDLE_PART
            enough = max(LEAST_NS, LEAST_SHARE * told.wall_ns, part * total)
            if ns >= (max(enough, 0.5 * total) if kind == UNNAMED else enough):
                rows = [row for row in rows if row.ns >= NOISE * ns]
                found.append(Named(told, kind or unnamed, tuple(rows), _line(rows, lines)))
        return sorted(found, key=lambda each: -each.ns)


def _with_pace(limit: Bound, job: Job, now: int) -> Bound:
    pace = job.pace
    if pace is None:
        return limit
    if not now or pace.slow is None:
        return msgspec.structs.replace(limit, steps_per_s=_per_s(pace.usual))
    slow, usual = _per_s(pace.slow), _per_s(pace.usual)
    since = pace.slow.spans[-1][0]
    return msgspec.structs.replace(limit, steps_per_s=slow, usual_steps_per_s=usual, since_ns=since)


def _per_s(stretch: Stretch) -> float | None:
    return round(stretch.steps * SECOND / stretch.wall_ns, 3) if stretch.wall_ns else None


def exposed(rows: Sequence[Lost], lost_ns: int) -> list[Lost]:
    """As much of them as the card was idle. What gives it work is hidden first: meanwhile it has some."""
    hidden = float(sum(row.ns for row in rows) - lost_ns)
    found = []
    for feeding in (True, False):
        side = [row for row in rows if (row.what in FEEDING) == feeding]
        total = sum(row.ns for row in side)
        part = min(1.0, max(0.0, hidden / total)) if total else 0.0
        hidden -= total * part
        found += [replace(row, ns=int(row.ns * (1 - part))) for row in side]
    return [row for row in found if row.ns > 0]


def _takes_turns(accounts: Accounts, number: int, job: Job) -> bool:
    """Waits for the GPU after so little work that the two never work at the same time."""
    launches, graphs = accounts.launches(number, job.pid)
    waits = accounts.waits(number, job.pid)
    return launches <= WORK_PER_WAIT * waits and 2 * graphs <= waits  # a graph per wait: a token, a request


def _chosen(row: Lost) -> bool:
    return row.bucket == "sleep" and not row.via


def _line(rows: Sequence[Lost], lines: Lines) -> Line | None:
    """Of the largest row, where its time was sampled and is the job's own."""
    main = max(rows, key=lambda row: row.ns)
    if main.via and main.whose != "feeder":
        return None  # where the job waits, and what the other does, is told by the detector's own lines
    known = lines.get((main.bucket, {"io": "", "sync": "copy"}.get(main.what, main.what)), [])
    known = known or lines.get((main.bucket, main.what), [])
    return known[0] if known else None
