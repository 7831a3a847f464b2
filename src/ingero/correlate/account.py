"""The account of a stretch of time: every nanosecond of a job's chain in one row.

The chain is the thread that feeds the GPU, with its waits replaced by what the threads
it waited for did meanwhile. Rows say in which bucket, for which kind of call, through
whose fault. The difference of two accounts, per step, is where the extra time of a step
goes: rows that grew, as far as the steps grew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ingero.correlate.activity import Activities, Doing, kind_of_call
from ingero.correlate.ledger import Ledgers
from ingero.correlate.loss import LossPart, Lost
from ingero.correlate.tables import Family, Tables
from ingero.model.facts import Facts
from ingero.model.finding import SourceLine
from ingero.model.layout import Bucket
from ingero.model.span_sums import Span

READ_BYTES = 64 << 10  # a copy of at most this much takes microseconds on any bus
# A launch that waits has no room in the GPU's queue: the GPU is behind, as in any wait for it.
BEHIND = frozenset({"", "launch", "graph", "collective", "module", "capture"})
READ_NS = 200_000  # on a core, for a value read back
MAX_WHO = 16
FAILING = 0.1  # of the allocations
WAITS_SHARE = 0.03  # of the time waited for the disk: with less, kernel time has other reasons


@dataclass(frozen=True, slots=True)
class Account:
    """Rows of one stretch, and the lines behind the time on a core."""

    rows: tuple[Lost, ...]
    lines: tuple[tuple[int, Doing], ...] = ()  # of which thread

    @property
    def wall_ns(self) -> int:
        return sum(row.ns for row in self.rows)


class Accounts:
    """Accounts of several stretches of one job's time, made alike so that they can be compared."""

    def __init__(self, facts: Facts, family: Family, stretches: Sequence[Sequence[Span]]) -> None:
        self._facts = facts.over(stretches)
        self._tables = Tables(self._facts)
        self._ledgers = Ledgers(self._tables, family, facts.agent_pid)
        self._activities = Activities(facts)
        self._stretches = stretches
        self._doings: dict[tuple[int, int], list[list[Doing]]] = {}

    def of(self, pid: int, tid: int) -> list[Account]:
        return [self._account(number, pid, tid) for number in range(len(self._stretches))]

    def _account(self, number: int, pid: int, tid: int) -> Account:
        row = self._tables.thread(number, tid)
        if row is None:
            return Account(())
        rows = [made for each in self._ledgers.whole(pid, row) for made in self._told_apart(number, each)]
        threads = {
            (each.pid, each.tid) for each in rows if each.bucket in ("host_cpu", "cuda_cpu", "gpu_wait")
        }
        lines = [(tid, doing) for pid, tid in threads for doing in self._doing(number, pid, tid)]
        return Account(tuple(_merged(rows)), tuple(lines))

    def _doing(self, number: int, pid: int, tid: int) -> list[Doing]:
        if (pid, tid) not in self._doings:
            self._doings[pid, tid] = self._activities.of(pid, tid, self._stretches)
        return self._doings[pid, tid][number]

    def _told_apart(self, number: int, row: Lost) -> Iterator[Lost]:
        """Time on a core by what samples saw, waits for the GPU by the call they were in."""
        if row.bucket in ("host_cpu", "cuda_cpu"):
            shares = self._sampled(number, row)
            if row.bucket == "host_cpu":
                shares = self._with_io(number, row, shares)
        elif row.bucket == "gpu_wait":
            shares = self._waited(number, row.pid)
        else:
            shares = {}
        yield from _divided(row, shares)

    def _sampled(self, number: int, row: Lost) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        reads = self._reads_values(number, row)
        for doing in self._doing(number, row.pid, row.tid):
            if doing.bucket == row.bucket:
                sums["sync" if reads and doing.what == "copy" else doing.what] += doing.ns
        return sums or (self._called(number, row.pid) if row.bucket == "cuda_cpu" else {})

    def _reads_values(self, number: int, row: Lost) -> bool:
        """Whether the copies a thread was seen in read values back: each took no time worth speaking of."""
        copying = sum(doing.ns for doing in self._doing(number, row.pid, row.tid) if doing.what == "copy")
        rows = self._tables.operations.get((number, row.pid))
        read = sum(
            int(each["count"]) for each in (rows if rows is not None else ()) if self._is_reading(each)
        )
        return copying < READ_NS * read

    def _with_io(self, number: int, row: Lost, shares: dict[str, float]) -> dict[str, float]:
        """Of a thread that waits for the disk: its time in the kernel, copying what it reads or writes."""
        thread = self._tables.thread(number, row.tid)
        if thread is None or int(thread["ns"][Bucket.DISK_WAIT]) < WAITS_SHARE * int(thread["ns"].sum()):
            return shares
        shares = dict(shares) or {"": 1.0}
        whole = sum(shares.values())
        inside = min(
            int(thread["system_ns"]) / max(int(thread["ns"][Bucket.HOST_CPU]), 1) * whole, shares.get("", 0.0)
        )
        return shares | {"": shares.get("", 0.0) - inside, "io": inside}

    def _called(self, number: int, pid: int) -> dict[str, float]:
        """Where nothing was sampled: by what its calls took on a core."""
        return self._by_call(number, pid, Bucket.CUDA_CPU)

    def _waited(self, number: int, pid: int) -> dict[str, float]:
        found = self._by_call(number, pid, Bucket.GPU_WAIT)
        sums: dict[str, float] = defaultdict(float)
        for what, ns in found.items():
            sums["" if what in BEHIND else what] += ns
        return sums

    def _by_call(self, number: int, pid: int, bucket: Bucket) -> dict[str, float]:
        rows = self._tables.operations.get((number, pid))
        sums: dict[str, float] = defaultdict(float)
        for row in rows if rows is not None else ():
            ns = int(row["split"][bucket])
            if ns:
                sums[self._kind(row)] += ns
        return sums

    def _kind(self, row: np.void) -> str:
        name = self._facts.ops[int(row["op"])].name if int(row["op"]) in self._facts.ops else ""
        return "sync" if self._is_reading(row) else kind_of_call(name)  # a value read back is a wait

    def _is_reading(self, row: np.void) -> bool:
        known = self._facts.ops.get(int(row["op"]))
        small = int(row["bytes"]) <= READ_BYTES * int(row["count"])
        return known is not None and small and kind_of_call(known.name) == "copy" and "HtoD" not in known.name

    def waits(self, number: int, pid: int) -> int:
        """How often the process waited for a result."""
        rows = self._tables.operations.get((number, pid))
        sums: dict[str, int] = defaultdict(int)
        for row in rows if rows is not None else ():
            op = self._facts.ops.get(int(row["op"]))
            if op is not None and self._kind(row) == "sync":
                sums[op.name] += int(row["count"])
        return max(sums.values(), default=0)  # the runtime's call and the driver's inside it are one

    def sent(self, number: int, pid: int) -> int:
        """How often it copied something to the GPU."""
        rows = self._tables.operations.get((number, pid))
        return sum(int(row["count"]) for row in (rows if rows is not None else ()) if self._is_sending(row))

    def _is_sending(self, row: np.void) -> bool:
        """By the driver's name: the runtime's does not tell the direction."""
        known = self._facts.ops.get(int(row["op"]))
        return known is not None and "cuMemcpyHtoD" in known.name

    def out_of_memory(self, number: int, pid: int) -> bool:
        """Whether allocations fail: what they, and the tidying up after them, take is a matter of memory."""
        rows = self._tables.operations.get((number, pid))
        made = [row for row in (rows if rows is not None else ()) if self._kind(row) == "alloc"]
        return sum(int(row["errors"]) for row in made) > FAILING * sum(int(row["count"]) for row in made)

    def launches(self, number: int, pid: int) -> tuple[int, int]:
        """Kernels and graphs given to the GPU."""
        rows = self._tables.operations.get((number, pid))
        sums: dict[str, dict[str, int]] = {"launch": {}, "graph": {}}
        for row in rows if rows is not None else ():
            op = self._facts.ops.get(int(row["op"]))
            if op is not None and op.kind in ("launch", "graph") and "Launch" in op.name:
                side = sums["graph" if "Graph" in op.name else "launch"]
                layer = "runtime" if op.name.startswith("cuda") else "driver"
                side[layer] = side.get(layer, 0) + int(row["count"])
        return max(sums["launch"].values(), default=0), max(sums["graph"].values(), default=0)


def _divided(row: Lost, shares: dict[str, float]) -> Iterator[Lost]:
    total = sum(shares.values())
    if not total:
        yield row
        return
    for what, share in shares.items():
        ns = int(row.ns * share / total)
        if ns:
            yield replace(row, ns=ns, what=what)


def _key(row: Lost) -> tuple[object, ...]:
    own = row.whose in ("nobody", "feeder") and not row.via
    return row.bucket, row.what, row.whose, row.gil, "" if own else row.comm, row.via[-1:] if row.via else ()


def _merged(rows: Iterable[Lost]) -> list[Lost]:
    """One row for each kind of time; whoever has a part in it keeps it."""
    found: dict[tuple[object, ...], list[Lost]] = defaultdict(list)
    for row in rows:
        found[_key(row)].append(row)
    made = []
    for members in found.values():
        first = max(members, key=lambda row: row.ns)
        made.append(
            replace(
                first,
                ns=sum(row.ns for row in members),
                who=_everybody(members),
                waits=sum(row.waits for row in members),
            )
        )
    return sorted(made, key=lambda row: -row.ns)


def _everybody(rows: Iterable[Lost]) -> tuple[LossPart, ...]:
    sums: dict[int, LossPart] = {}
    for row in rows:
        # They may have had the core for longer than this row waited for it.
        share = min(1.0, row.ns / max(sum(part.ns for part in row.who), 1))
        for part in row.who:
            before = sums.get(part.pid)
            ns = int(part.ns * share) + (before.ns if before else 0)
            sums[part.pid] = LossPart(part.pid, part.comm, ns)
    return tuple(sorted(sums.values(), key=lambda part: -part.ns)[:MAX_WHO])


def grown(usual: Account, now: Account, ratio: float, excess_ns: int) -> list[Lost]:
    """Rows that grew, most first; `ratio`: steps now to steps usual.

    Waits for the GPU that became shorter hid a part of what grew; no more is told than the
    steps became longer.
    """
    before = {_key(row): row.ns * ratio for row in usual.rows}
    rows = [(row, row.ns - before.get(_key(row), 0.0)) for row in now.rows]
    rows = [(row, more) for row, more in rows if more > 0]
    total = sum(more for _, more in rows)
    part = min(1.0, excess_ns / total) if total else 0.0
    made = [scaled(row, more * part) for row, more in rows]
    return sorted((row for row in made if row.ns > 0), key=lambda row: -row.ns)


def mean_of(accounts: Sequence[tuple[Account, float]]) -> Account:
    """Of several alike jobs, each with what to multiply it by to have as many steps."""
    rows = [scaled(row, row.ns * times / len(accounts)) for one, times in accounts for row in one.rows]
    lines = [
        (tid, replace(doing, ns=doing.ns * times / len(accounts)))
        for one, times in accounts
        for tid, doing in one.lines
    ]
    return Account(tuple(_merged(rows)), tuple(lines))


def scaled(row: Lost, ns: float) -> Lost:
    """As much of a row, with its culprits' parts in proportion."""
    part = ns / row.ns if row.ns else 0.0
    who = tuple(LossPart(each.pid, each.comm, int(each.ns * part)) for each in row.who)
    return replace(row, ns=int(ns), who=who)


@dataclass(frozen=True, slots=True)
class GrownLine:
    """A line whose time grew."""

    source: SourceLine
    ns: float
    share: float  # of all that grew in that bucket and kind
    stack: int


Lines = dict[tuple[str, str], list[GrownLine]]  # by bucket and kind of call, most first


def grown_lines(usual: Account, now: Account, ratio: float) -> Lines:
    """The lines whose time grew."""
    before: dict[tuple[str, str, SourceLine | None], float] = defaultdict(float)
    after: dict[tuple[str, str, SourceLine | None], float] = defaultdict(float)
    stacks: dict[SourceLine | None, int] = {}
    for account, sums in ((usual, before), (now, after)):
        for _, doing in account.lines:
            sums[doing.bucket, doing.what, doing.source] += doing.ns
            stacks[doing.source] = doing.stack
    found: dict[tuple[str, str], list[tuple[SourceLine | None, float]]] = defaultdict(list)
    for (bucket, what, source), ns in after.items():
        more = ns - before[bucket, what, source] * ratio
        if more > 0:
            found[bucket, what].append((source, more))
    return {key: _most_first(lines, stacks) for key, lines in found.items()}


def _most_first(
    lines: list[tuple[SourceLine | None, float]], stacks: dict[SourceLine | None, int]
) -> list[GrownLine]:
    total = sum(ns for _, ns in lines)
    made = [GrownLine(source, ns, ns / total, stacks[source]) for source, ns in lines if source is not None]
    return sorted(made, key=lambda line: -line.ns)
