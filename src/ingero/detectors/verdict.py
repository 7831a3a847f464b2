"""The verdict: where the extra time of a step goes, and whose name it bears.

Two questions about every job. Did its pace fall? Then the account of the slow time is
compared with that of the usual time, per step, and the rows that grew are the cause. Is its
GPU idle though there is work? Then the rows that keep the GPU idle are. Either way
every nanosecond told comes from the same rows: title, effect, causes, culprits, line and
gain cannot contradict each other. What no detector has a name for is told as slowdown or
gpu-idle.

Three witnesses: the pace, the GPU's own word, and what the chain did that the GPU did
not hide. A pace that fell while the GPU is as busy as before is more work in a step,
which is no trouble.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from ingero.correlate.account import Account, Accounts, GrownLine, Lines, grown, grown_lines, scaled
from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.pace import MOST_SPANS, PaceStretch
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.bound import GPU, NOBODY, ROW_KINDS, UNNAMED, Setting, bound_of, in_words, name_of
from ingero.model.facts import Facts
from ingero.model.report import Bound
from ingero.model.span_sums import Span
from ingero.units import SECOND

LEAST_SHARE = 0.03  # of the time: nobody is told of less
LEAST_PART = 0.15  # of the extra time: smaller parts come with the larger ones
LEAST_IDLE_PART = 0.25  # the same of an idle GPU: work that it did not wait for is in there, too
LEAST_NS = 500_000_000
NOISE = 0.02  # of a finding's time: rows that are smaller say nothing
MORE_WORK = 0.5  # of what a step takes longer: the GPU's own work; then nothing is wrong with it
MOST_SLOW = 4  # slow times of a job that are looked at, the longest
NOW_NS = 20 * SECOND  # of the last time at one pace: what limits the job now
A_PART = 0.25  # of a slice that lies in what is judged here
CAPTURING = 0.2  # of the launching: then it is for graphs
WAITS_SENDING = 0.5  # copies to the GPU for each wait: then the waits are theirs
LEAST_IDLE = 0.10  # of the time: a GPU that works all the time is idle for some percent of it
IDLE_SHARE = 0.25  # of the time: with less idleness a GPU counts as kept busy
KEPT_BUSY = 0.90  # of the time: such a GPU has nothing to complain of
# Copying, and what freeing memory makes the GPU do, count as its work.
DESPITE = frozenset({"alloc-churn", "copy-bound"})
WORK_PER_WAIT = 20  # launches: with more in between, the queue is deep enough
OFTENER = 2  # times as many waits in a step as usual
FEEDING = frozenset({"launch", "graph"})
ON_CORE = ("host_cpu", "cuda_cpu", "gpu_wait")
NEEDLESS = frozenset({"io", "gc", "copy", "alloc", "free"})  # work that a step can do without, or elsewhere


@dataclass(frozen=True, slots=True)
class ToldStretch:
    """What all findings about one stretch of a job have in common."""

    job: Job
    spans: tuple[Span, ...]
    wall_ns: int
    excess_ns: int
    usual_ns: int | None = None  # a step's
    now_ns: int | None = None
    busy: float | None = None  # the GPU, meanwhile
    usual_busy: float | None = None

    @property
    def changed(self) -> bool:
        return self.usual_ns is not None

    @property
    def grown_ns(self) -> float:
        """By how much its steps took longer, all together, the GPU's own work among it."""
        if not self.usual_ns or not self.now_ns:
            return 0.0
        return self.wall_ns * (1 - self.usual_ns / self.now_ns)

    def slices(self, facts: Facts) -> dict[int, int]:
        return slices_of(self.spans, facts)


def slices_of(spans: Iterable[Span], facts: Facts) -> dict[int, int]:
    """How much of each slice lies within."""
    found: dict[int, int] = defaultdict(int)
    for start, end in spans:
        first, last = ((at - facts.origin_ns) // facts.slice_ns for at in (start, end - 1))
        for number in range(first, last + 1):
            found[number] += min(end, facts.at_ns(number + 1)) - max(start, facts.at_ns(number))
    return found


@dataclass(frozen=True, slots=True)
class NamedRows:
    """Rows with one name."""

    told: ToldStretch
    kind: str
    rows: tuple[Lost, ...]
    line: GrownLine | None = None

    @property
    def ns(self) -> int:
        return sum(row.ns for row in self.rows)

    def by_slice(self, timeline: Timeline) -> Iterator[tuple[SliceLedger, tuple[Lost, ...]]]:
        """Its rows spread over the slices it lies in."""
        parts, job = self.told.slices(timeline.facts), self.told.job
        most = max(parts.values(), default=0)
        chosen = [each for each in job.slices if parts[each.number] >= 0.5 * most > 0]
        total = sum(parts[each.number] for each in chosen)
        for each in chosen:
            share = parts[each.number] / total
            yield each, tuple(scaled(row, row.ns * share) for row in self.rows)


class Verdicts:
    """About all jobs of a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.named: list[NamedRows] = []
        self.bound: list[Bound] = []  # what limits each job now
        self._by_card: set[tuple[int, int]] = set()  # process and slice that a GPU's word was asked about
        for job in timeline.jobs:
            if not timeline.facts.partial:
                self._judge(job)
        facts = timeline.facts
        self._judged = {  # process and slice
            (named.told.job.pid, number)
            for named in self.named
            for number, ns in named.told.slices(facts).items()
            if ns > A_PART * facts.slice_ns
        }

    def replaces(self, kind: str, job: Job, each: SliceLedger) -> bool:
        """Whether what a detector says of a slice by itself is told here, or the GPU gives it the lie."""
        if kind not in ROW_KINDS:
            return False
        at = job.pid, each.number
        if at in self._judged:
            return True
        busy = self._timeline.cards.busy_for(*at) or 0.0
        return kind not in DESPITE and (at in self._by_card or busy >= KEPT_BUSY)

    def grown_ns(self, job: Job, numbers: Sequence[int]) -> float | None:
        """By how much the steps of these slices took longer, where most of them are of a pace that fell."""
        told = {id(each.told): each.told for each in self.named if each.told.job is job and each.told.changed}
        wall_ns = {each.number: each.wall_ns for each in job.slices}
        asked = set(numbers)
        within, grown = 0, 0.0
        for each in told.values():
            slices = each.slices(self._timeline.facts)
            inside = sum(ns for number, ns in slices.items() if number in asked)
            within += inside
            grown += each.grown_ns * inside / max(each.wall_ns, 1)
        return grown if 2 * within >= sum(wall_ns.get(number, 0) for number in asked) else None

    def _busy(self, job: Job, stretch: PaceStretch) -> float | None:
        """The GPU's own word, as far as it is about this job."""
        facts, cards = self._timeline.facts, self._timeline.cards.of(job.pid)
        if not cards:
            return None
        slices = [(at - facts.origin_ns) // facts.slice_ns for at in (stretch.first_ns, stretch.last_ns)]
        shared = self._timeline.cards.shared(job.pid, range(*slices))
        return None if shared else facts.busy(cards, stretch.spans)

    def _judge(self, job: Job) -> None:
        usual, slow = self._stretches(job)
        if usual is None:
            return
        stretches = [usual, *sorted(slow, key=lambda each: -each.wall_ns)[:MOST_SLOW]]
        busy = [self._busy(job, each) for each in stretches]
        for stretch, share in zip(stretches, busy, strict=True):
            if share is not None:
                inside = slices_of(stretch.spans, self._timeline.facts)
                self._by_card |= {
                    (job.pid, number)
                    for number, ns in inside.items()
                    if ns > A_PART * self._timeline.facts.slice_ns
                }
        last = _last_of(max(stretches, key=lambda each: each.last_ns))
        accounts = Accounts(
            self._timeline.facts, self._timeline.family, [*(each.spans for each in stretches), last]
        )
        made = accounts.of(job.pid, job.tid)
        sends = accounts.sent(len(stretches), job.pid) >= WAITS_SENDING * accounts.waits(
            len(stretches), job.pid
        )
        self._limit(job, stretches, made[-1], last, sends)
        for number in range(1, len(stretches)):
            self.named += self._slower(job, stretches, number, accounts, made, busy)
        if job.pace is not None or not self._timeline.is_settling(job.pid):
            self.named += self._idle(job, usual, accounts, made[0], busy[0])

    def _limit(
        self, job: Job, stretches: Sequence[PaceStretch], account: Account, last: Sequence[Span], sends: bool
    ) -> None:
        """What limits the job at the end."""
        now = max(stretches, key=lambda each: each.last_ns)
        setting = Setting(self._timeline, job, False, sends, *last[0])
        limit = bound_of(setting, account, self._busy(job, replace(now, spans=tuple(last))))
        if limit is not None:
            limit = _with_pace(limit, job, now)
            self.bound.append(msgspec.structs.replace(limit, text=in_words(limit)))

    def _stretches(self, job: Job) -> tuple[PaceStretch | None, Sequence[PaceStretch]]:
        if job.pace is not None:
            return job.pace.usual, job.pace.slow
        facts = self._timeline.facts
        settled = [each for each in job.slices if not each.cold and not each.ending]
        spans: list[Span] = []
        wall_ns = 0
        for each in settled:  # those next to each other are one: an hour has 1,800
            first, last = facts.at_ns(each.number), facts.at_ns(each.number + 1)
            if spans and spans[-1][1] == first:
                spans[-1] = (spans[-1][0], last)
            elif len(spans) < MOST_SPANS:
                spans.append((first, last))
            else:
                break
            wall_ns += each.wall_ns
        return (PaceStretch(tuple(spans), 0.0, wall_ns) if spans else None), ()

    # --- the pace fell ---------------------------------------------------------------------

    def _slower(
        self,
        job: Job,
        stretches: Sequence[PaceStretch],
        number: int,
        accounts: Accounts,
        made: Sequence[Account],
        busy: Sequence[float | None],
    ) -> list[NamedRows]:
        assert job.pace is not None
        usual, slow = stretches[0], stretches[number]
        ratio, excess = slow.steps / usual.steps, job.pace.excess_ns(slow)
        more_work = _more_work(busy[0], busy[number], usual, slow)
        if more_work is not None and more_work > MORE_WORK:
            return []  # the GPU has more to do in a step
        per_step = [accounts.waits(at, job.pid) / stretches[at].steps for at in (0, number)]
        often = per_step[1] >= OFTENER * per_step[0] and _takes_turns(accounts, number, job)
        sent = [accounts.sent(at, job.pid) / stretches[at].steps for at in (0, number)]
        sends = sent[1] - sent[0] >= WAITS_SENDING * (per_step[1] - per_step[0])
        setting = Setting(self._timeline, job, often, sends, slow.first_ns, slow.last_ns)
        groups = self._groups(grown(made[0], made[number], ratio, excess), setting)
        if accounts.out_of_memory(number, job.pid):
            groups.pop("alloc-churn", None)
        # Waits for the GPU are its work, unless it says that it has less of it.
        for_the_gpu = groups.pop(GPU, [])
        if more_work is not None:
            groups.setdefault(UNNAMED, []).extend(for_the_gpu)
        else:
            excess -= sum(row.ns for row in for_the_gpu)
        told = ToldStretch(
            job,
            slow.spans,
            slow.wall_ns,
            excess,
            int(usual.step_ns),
            int(slow.step_ns),
            busy[number],
            busy[0],
        )
        return self._told(told, groups, "slowdown", grown_lines(made[0], made[number], ratio))

    # --- idle though there is work -------------------------------------------------------

    def _idle(
        self, job: Job, usual: PaceStretch, accounts: Accounts, account: Account, busy: float | None
    ) -> list[NamedRows]:
        if busy is None:
            return self._held_up(job, usual, accounts, account)
        if not account.rows:
            return []
        wall = account.wall_ns
        idle = int((1 - busy) * wall)
        often = _takes_turns(accounts, 0, job)
        sends = accounts.sent(0, job.pid) >= WAITS_SENDING * accounts.waits(0, job.pid)
        setting = Setting(self._timeline, job, often, sends, usual.first_ns, usual.last_ns)
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
        told = ToldStretch(job, usual.spans, wall, sum(row.ns for row in rows), busy=busy)
        lines = grown_lines(Account(()), account, 1.0)
        groups = self._groups(rows, setting)
        if accounts.out_of_memory(0, job.pid):
            groups.pop("alloc-churn", None)
        return self._told(told, groups, "gpu-idle", lines)

    def _held_up(self, job: Job, usual: PaceStretch, accounts: Accounts, account: Account) -> list[NamedRows]:
        """Where no card tells: a server that waits while somebody waits for it. It and the GPU take turns, so
        meanwhile the GPU has nothing to do."""
        rows = [row for row in account.rows if row.whose == "asked"]
        ns = sum(row.ns for row in rows)
        if ns < IDLE_SHARE * account.wall_ns or not ns or not _takes_turns(accounts, 0, job):
            return []
        setting = Setting(self._timeline, job, True, False, usual.first_ns, usual.last_ns)
        told = ToldStretch(job, usual.spans, account.wall_ns, ns)
        lines = grown_lines(Account(()), account, 1.0)
        return self._told(told, self._groups(rows, setting), "gpu-idle", lines)

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
        told: ToldStretch,
        groups: dict[str, list[Lost]],
        unnamed: str,
        lines: Lines,
    ) -> list[NamedRows]:
        """What is worth saying; what has no name when it is most of it."""
        total = sum(row.ns for rows in groups.values() for row in rows)
        capturing = sum(row.ns for row in groups.get("graph-trouble", ()))
        if 0 < capturing >= CAPTURING * sum(row.ns for row in groups.get("launch-bound", ())):
            groups["graph-trouble"] += groups.pop("launch-bound", [])  # what a capture launches is part of it
        found = []
        for kind, rows in groups.items():
            ns = sum(row.ns for row in rows)
            part = LEAST_PART if told.changed else LEAST_IDLE_PART
            # That the pace fell is sure: what is most of it is worth saying however short it was.
            least = 0 if told.changed and ns >= 0.5 * told.grown_ns else LEAST_NS
            enough = max(least, LEAST_SHARE * told.wall_ns, part * total)
            if ns >= (max(enough, 0.5 * total) if kind == UNNAMED else enough):
                rows = [row for row in rows if row.ns >= NOISE * ns]
                found.append(
                    NamedRows(told, kind or unnamed, tuple(rows), line_of(rows, lines, told.changed))
                )
        return sorted(found, key=lambda each: -each.ns)


def _last_of(stretch: PaceStretch) -> list[Span]:
    first, last = stretch.spans[-1]
    return [(max(first, last - NOW_NS), last)]


def _more_work(
    usual_busy: float | None, busy: float | None, usual: PaceStretch, slow: PaceStretch
) -> float | None:
    """Of what the steps became longer, the part in which the GPU works more in each; None: it does not tell.

    With the same work in fewer steps it would be busy less by as much as there are fewer.
    """
    if not usual_busy or busy is None:
        return None
    same = usual_busy * usual.step_ns / slow.step_ns
    return (busy - same) / (usual_busy - same) if usual_busy > same else None


def _with_pace(limit: Bound, job: Job, now: PaceStretch) -> Bound:
    pace = job.pace
    if pace is None:
        return limit
    steps = _per_s(now)
    if now is pace.usual:
        return msgspec.structs.replace(limit, steps_per_s=steps)
    since = now.spans[-1][0]
    return msgspec.structs.replace(
        limit, steps_per_s=steps, usual_steps_per_s=_per_s(pace.usual), since_ns=since
    )


def _per_s(stretch: PaceStretch) -> float | None:
    return round(stretch.steps * SECOND / stretch.wall_ns, 3) if stretch.wall_ns else None


def exposed(rows: Sequence[Lost], lost_ns: int) -> list[Lost]:
    """As much of them as the GPU was idle. What gives it work is hidden first: meanwhile it has some."""
    hidden = float(sum(row.ns for row in rows) - lost_ns)
    found = []
    for feeding in (True, False):
        side = [row for row in rows if (row.what in FEEDING) == feeding]
        total = sum(row.ns for row in side)
        part = min(1.0, max(0.0, hidden / total)) if total else 0.0
        hidden -= total * part
        found += [scaled(row, row.ns * (1 - part)) for row in side]
    return [row for row in found if row.ns > 0]


def _takes_turns(accounts: Accounts, number: int, job: Job) -> bool:
    """Waits for the GPU after so little work that the two never work at the same time."""
    launches, graphs = accounts.launches(number, job.pid)
    waits = accounts.waits(number, job.pid)
    return launches <= WORK_PER_WAIT * waits and 2 * graphs <= waits  # a graph per wait: a token, a request


def _chosen(row: Lost) -> bool:
    """It sleeps, or waits until a time that it has set itself."""
    return row.whose == "clock" or (row.bucket == "sleep" and not row.via and row.whose != "asked")


def line_of(rows: Sequence[Lost], lines: Lines, changed: bool) -> GrownLine | None:
    """Of the largest row, where its time was sampled and is the job's own."""
    main = max(rows, key=lambda row: row.ns)
    if main.via and main.whose != "feeder":
        return None  # where the job waits, and what the other does, is told by the detector's own lines
    if main.what == "sync" and not changed:
        return None  # most of that time is the GPU's own work: what costs is how often it is waited for
    known = lines.get((main.bucket, {"io": "", "sync": "copy"}.get(main.what, main.what)), [])
    known = known or lines.get((main.bucket, main.what), [])
    return known[0] if known else None
