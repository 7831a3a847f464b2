"""Why one of several alike jobs is slower: its account against that of the others, per step.

The same rows, names, lines and advice as for a job that became slower (verdict.py); only what is
usual comes from the peers, not from the job's own better days.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ingero.correlate.account import Account, Accounts, grown, grown_lines, mean_of, scaled
from ingero.correlate.loss import Lost
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.bound import GPU, NOBODY, OWN, WORK, Setting, name_of
from ingero.detectors.detector import Detector
from ingero.detectors.judge import Judge, claim_of
from ingero.detectors.verdict import NamedRows, ToldStretch, line_of
from ingero.model.finding import Finding
from ingero.model.span_sums import Span
from ingero.model.words import bucket_words

LEAST_PART = 0.15  # of what the job is slower by: smaller parts come with the larger ones
NOISE = 0.02  # of a reason's time: rows that are smaller say nothing
MOST_PEERS = 8  # more of them do not change their mean


@dataclass(frozen=True, slots=True)
class Doer:
    """One of the jobs that are compared, over the same stretch of time by its own clock."""

    timeline: Timeline
    job: Job
    span: Span
    steps: float

    def account(self, steps: float) -> Account:
        """Of so many steps. Seconds that lie half within the stretch are left out of the sums."""
        facts, family = self.timeline.facts, self.timeline.family
        made = Accounts(facts, family, [[self.span]]).of(self.job.pid, self.job.tid)[0]
        if not made.rows or not self.steps:
            return Account(())
        whole = (self.span[1] - self.span[0]) / made.wall_ns
        return mean_of([(made, whole * steps / self.steps)])


@dataclass(frozen=True, slots=True)
class Reason:
    """Rows with one name, that one job has and its peers have less of."""

    kind: str
    rows: tuple[Lost, ...]
    finding: Finding  # as that job's own node tells it

    @property
    def ns(self) -> int:
        return sum(row.ns for row in self.rows)


def reasons(
    slow: Doer, peers: Sequence[Doer], excess_ns: int, usual_ns: int, by_name: dict[str, Detector]
) -> list[Reason]:
    """What the slow one's extra time goes to, most first; no more of it than it is slower by."""
    now = slow.account(slow.steps)
    chosen = peers[:: max(1, len(peers) // MOST_PEERS)][:MOST_PEERS]
    told = [account for peer in chosen if (account := peer.account(slow.steps)).rows]
    usual = mean_of([(account, 1.0) for account in told])
    if not now.rows or not usual.rows:
        return []
    setting = Setting(slow.timeline, slow.job, False, False, *slow.span)
    rows = _lost(grown(usual, now, 1.0, 1 << 62), setting)
    total = sum(row.ns for _, row in rows)
    part = min(1.0, excess_ns / total) if total else 0.0
    groups: dict[str, list[Lost]] = defaultdict(list)
    for name, row in rows:
        groups[name].append(scaled(row, row.ns * part))
    wall_ns = slow.span[1] - slow.span[0]
    about = ToldStretch(
        slow.job, (slow.span,), wall_ns, excess_ns, usual_ns, int(wall_ns / max(slow.steps, 1))
    )
    lines = grown_lines(usual, now, 1.0)
    found = []
    for name, members in groups.items():
        ns = sum(row.ns for row in members)
        kept = [row for row in members if row.ns >= NOISE * ns]
        if kept and ns >= LEAST_PART * total * part:
            named = NamedRows(about, name or "slowdown", tuple(kept), line_of(kept, lines, changed=True))
            found += _told(slow.timeline, named, by_name)
    return sorted(found, key=lambda each: -each.ns)


def _lost(rows: Sequence[Lost], setting: Setting) -> list[tuple[str, Lost]]:
    named = [(name_of(row, setting), row) for row in rows]
    return [(name, row) for name, row in named if name not in (GPU, NOBODY, "graph-trouble")]


def _told(timeline: Timeline, named: NamedRows, by_name: dict[str, Detector]) -> list[Reason]:
    claim = claim_of(by_name[named.kind], named, timeline)
    if claim is None:
        return []
    return [Reason(named.kind, named.rows, each) for each in Judge(timeline, [claim]).findings()]


def in_words(reason: Reason) -> str:
    """What happens on that node, for a title: `log-shipper (pid 77) has its cores`."""
    main = max(reason.rows, key=lambda row: row.ns)
    if main.bucket == "runqueue":
        if main.whose == "quota":
            return "its CPU quota is used up"
        return f"{_crowd(main)} its cores" if main.who else "it waits for a core"
    doer = main.via[-1] if main.via else "it"
    if main.bucket in ("host_cpu", "cuda_cpu"):
        return f"{doer} spends longer on {WORK.get(main.what) or OWN[main.bucket]}"
    if main.bucket == "sleep":
        return f"{doer} sleeps"
    if main.bucket == "disk_wait":
        return f"{doer} waits for the disk"
    return f"{doer} spends longer {bucket_words(main.bucket)}"


def _crowd(row: Lost) -> str:
    """Whoever had most of a core, with all others of its name."""
    sums: Counter[str] = Counter()
    for part in row.who:
        sums[part.comm] += part.ns
    comm = sums.most_common(1)[0][0]
    pids = {part.pid for part in row.who if part.comm == comm}
    return f"{comm} (pid {pids.pop()}) has" if len(pids) == 1 else f"{comm} ({len(pids)} processes) have"
