"""GPU memory leak: the job allocates, iteration after iteration, and does not free.

Shows as   more allocations than frees in nearly every slice, to the end. If each of hundreds of
           iterations keeps the same number, a short look is enough, and churn beside them does not
           matter: a cache that fills takes less and less. Or a few blocks of one size, at an
           even pace up to the end: a caching allocator that needs the same again and again.
           Calls that failed do not count, nor does a free of nothing.
Proof      counts of both, and the bytes that stay; where the driver tells how much memory the
           process holds (NVML), that grows too.
Not this   growth during start-up, or of a cache that rests or grows less and less; churn
           (alloc-churn); host memory, and addresses without memory behind them.
Blind to   memory kept inside a caching allocator (the driver sees only its blocks); which of
           several sizes is kept (the bytes are those of the mean allocation); the line, if
           stacks were left out to stay within the budget.
Severity   MEDIUM: it ends in an out-of-memory error, but nothing is slow yet.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ingero.correlate.timeline import Job, Spent, Timeline
from ingero.detectors.detector import Detector, LineChoice, State
from ingero.model.finding import Fix, Proof, Severity
from ingero.units import format_bytes, format_ns

LEAST_SLICES = 3  # two points make a line of anything
GROWING_SHARE = 0.7  # of the slices
KEPT_SHARE = 0.2  # of what was allocated
IN_EACH = 0.5  # per iteration: what grows with the loop needs no long look
MANY_STEPS = 50
REGULAR = 0.25  # spread of what iterations keep, from slice to slice
REGULAR_KEPT = 20  # in a slice: fewer are as many by chance
SETTLING = 0.5  # growth at the end, of that at the beginning: less is a cache that fills
LEAST_ALLOCATIONS = 8  # fewer are buffers made late
TICKING = (
    6  # blocks of one size at even intervals: a caching allocator that is short of the same again and again
)
ONE_SIZE = 0.1  # by which they may differ
EVEN = 0.2  # of all blocks: by so many they may be ahead of an even pace, or behind it, at any time
LEAST_BYTES = 16 << 20  # less in a recording fills no GPU within days
HELD_SHARE = 0.25  # of what the calls say stays, the driver must see: it gives memory in large blocks
WORKING = ("launch", "graph", "alloc")
# In the names of calls that take no memory of the GPU: the host's, or addresses alone.
HOLDS_NONE = ("Host", "MemMap", "Unmap", "Address", "SetAccess", "Trim")


def _kept(timeline: Timeline, job: Job, number: int, of_nothing: dict[int, int]) -> tuple[int, int, int]:
    """Allocations, frees, and the bytes that stayed; of those that succeeded."""
    allocated, freed = Spent(), Spent()
    for row in timeline.outermost(number, job.pid):
        known = timeline.facts.ops.get(int(row["op"]))
        if known and known.kind in ("alloc", "free") and _takes(known.name):
            (allocated if known.kind == "alloc" else freed).add(row)
    taken = max(0, allocated.count - allocated.errors)
    given_back = max(0, freed.count - freed.errors - of_nothing.get(number, 0))
    kept = max(0, taken - given_back)
    size = allocated.bytes * kept // taken if taken else 0
    return taken, given_back, size


def find(timeline: Timeline) -> Iterator[State]:
    for job in timeline.jobs:
        settled = _settled(job)
        settled = settled[len(settled) // 3 :]  # a start may allocate
        of_nothing = timeline.facts.freed_nothing(job.pid)
        rows = [_kept(timeline, job, number, of_nothing) for number in settled]
        growing = [allocated > freed for allocated, freed, _ in rows]
        allocated, freed, size = (sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0, 0)
        steps = sum(job.steps(number) for number in settled)
        regular = _regular(job, settled, rows)
        in_each = allocated - freed >= IN_EACH * steps and steps >= MANY_STEPS
        ticking = _ticks(timeline, job, settled, rows)
        long = len(rows) >= (2 if in_each or regular or ticking else LEAST_SLICES)
        steadily = ticking or (long and sum(growing) >= GROWING_SHARE * len(rows))
        if not steadily or not any(growing[-2:]):  # the last slice may be a fragment
            continue
        if _settles(rows):
            continue
        kept = allocated - freed
        if (
            (kept < LEAST_ALLOCATIONS and not ticking)
            or size < LEAST_BYTES
            or (kept < KEPT_SHARE * allocated and not regular)
        ):
            continue
        grown = _grown(timeline, job, settled)
        if grown is not None and grown < HELD_SHARE * size:
            continue  # freed by a call nobody saw, or into a pool it is taken from again
        yield _state(timeline, job, settled, allocated, freed, size, grown)


def _settled(job: Job) -> list[int]:
    """Without its start, and what of its end has no work for the GPU."""
    slices = [each for each in job.slices if not each.cold]
    while slices and slices[-1].ending and not job.spent(slices[-1].number, *WORKING).count:
        slices.pop()
    return [each.number for each in slices]


def _grown(timeline: Timeline, job: Job, slices: list[int]) -> int | None:
    """How much more the process holds at the end, as the driver tells; None: it does not."""
    held = [size for number, size in timeline.cards.memory_of(job.pid) if number in slices]
    return held[-1] - held[0] if len(held) >= 2 else None


def _ticks(timeline: Timeline, job: Job, slices: list[int], rows: list[tuple[int, int, int]]) -> bool:
    """Blocks of one size at an even pace up to the end, none given back: no cache fills like that.

    Buffers for ever longer inputs grow in size; those of a start come at once.
    """
    sizes = [size / allocated for allocated, _, size in rows if allocated]
    if not sizes or any(freed for _, freed, _ in rows) or max(sizes) > (1 + ONE_SIZE) * min(sizes):
        return False
    facts = timeline.facts
    ops = [number for number, op in facts.ops.items() if op.kind == "alloc" and _takes(op.name)]
    times = [facts.marks(job.pid, number)[:, 0] for number in ops]
    # The runtime's call and the driver's inside it are one.
    at_ns = np.sort(max(times, key=len, default=np.zeros(0, np.int64)))
    first, last = facts.at_ns(slices[0]), min(facts.at_ns(slices[-1] + 1), _last_ns(timeline, job))
    at_ns = at_ns[(at_ns >= first) & (at_ns < last)]
    if len(at_ns) < TICKING:
        return False
    ahead = (np.arange(len(at_ns)) + 0.5) / len(at_ns) - (at_ns - first) / (last - first)
    return float(np.abs(ahead).max()) <= EVEN


def _last_ns(timeline: Timeline, job: Job) -> int:
    """When it ended, or what was recorded of it."""
    known = timeline.facts.processes.get(job.pid)
    return known.end_ns if known and known.end_ns else timeline.facts.to_ns


def _takes(name: str) -> bool:
    return not any(word in name for word in HOLDS_NONE)


def _regular(job: Job, slices: list[int], rows: list[tuple[int, int, int]]) -> bool:
    """In the later half iterations keep the same wherever one looks: it may have begun amid."""
    steps = [job.steps(number) for number in slices]
    full = [at for at, count in enumerate(steps) if count >= max(MANY_STEPS, max(steps) // 2)]
    full = full[-max(2, len(full) // 2) :]
    kept = [rows[at][0] - rows[at][1] for at in full]
    if len(full) < 2 or min(kept) < REGULAR_KEPT:
        return False
    rates = [each / steps[at] for at, each in zip(full, kept, strict=True)]
    return max(rates) - min(rates) <= REGULAR * sum(rates) / len(rates)


def _settles(rows: list[tuple[int, int, int]]) -> bool:
    """A cache that grows less and less."""
    third = max(1, len(rows) // 3)
    early = sum(allocated - freed for allocated, freed, _ in rows[:third])
    late = sum(allocated - freed for allocated, freed, _ in rows[-third - 1 : -1] or rows[-third:])
    return late < SETTLING * early


def _state(
    timeline: Timeline,
    job: Job,
    slices: list[int],
    allocated: int,
    freed: int,
    size: int,
    grown: int | None,
) -> State:
    first, last = timeline.facts.at_ns(slices[0]), timeline.facts.at_ns(slices[-1] + 1)
    rate = size * 60_000_000_000 / (last - first)
    proof = Proof(
        f"{allocated} allocations, {freed} frees in {format_ns(last - first)}: {format_bytes(size)} stayed",
        "SELECT op, ret = 0 AS succeeded, SUM(weight), SUM(bytes * weight) FROM calls WHERE ("
        f"op LIKE '%Alloc%' OR op LIKE '%Free%' OR op LIKE '%Malloc%') AND pid = {job.pid}"
        f" AND timestamp_ns >= {first} AND timestamp_ns < {last} GROUP BY 1, 2",
    )
    return State(
        job.pid,
        job.comm,
        f"{job.comm} keeps {format_bytes(rate)} more GPU memory every minute",
        first,
        last,
        (proof,) if grown is None else (proof, _held_proof(job, grown, first, last)),
        Severity.MEDIUM,
        job.tid,
        fixes=(
            Fix("Look for tensors that stay alive: losses summed with their graph, lists of outputs, hooks."),
            Fix("See who allocates.", code="torch.cuda.memory._record_memory_history()"),
        ),
    )


def _held_proof(job: Job, grown: int, first: int, last: int) -> Proof:
    return Proof(
        f"the driver sees the process hold {format_bytes(grown)} more at the end",
        f"SELECT timestamp_ns, SUM(memory_bytes) FROM gpu_processes WHERE pid = {job.pid}"
        f" AND timestamp_ns >= {first} AND timestamp_ns < {last} GROUP BY timestamp_ns",
    )


DETECTOR = Detector(
    name="gpu-memory-leak",
    needs=frozenset({"calls"}),
    find=find,
    severity="MEDIUM",
    lines=(
        LineChoice("kept", "allocates what is not freed"),
        LineChoice("bytes", "allocates most", kinds=("alloc",)),
    ),
)
