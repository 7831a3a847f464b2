"""Pace: how many steps a job makes in a second, when that changed, and what was usual.

Steps are read from calls that are counted exactly, second by second: whatever else a
trouble adds to a step, most calls of the loop come as often as there are steps. So the
pace is what most of them agree on, and one call that is suddenly made a hundred times a
step does not hide that there are fewer steps.

Usual is the fastest pace the job kept for a while; slow is what lies a tenth or more
below it. Its start, and what comes after its last step, are no pace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingero.model.window import Records

LEAST_FALL = 0.10  # of the pace: steps differ by some percent for no reason
LEAST_WINDOWS = (
    2  # seconds that a change must last: three of them hold two whole ones; a single one is a hiccup
)
USUAL_WINDOWS = 3  # seconds that a pace was kept, to be usual
USUAL_PART = 0.2  # of what was seen, or five seconds
STEADY = 0.8  # part of the seconds in which a call must come
OFTEN = 0.3  # the same of a job whose start and end are in the recording, too
LEAST_CALLS = 3
SURE = 5.0  # standard errors that a change must exceed
MOST_CHANGES = 40  # a job that changes more often has no pace
SILENT = 0.02  # of the usual: a second without a step counts as this much
WHOLE = 0.3  # of a second: shorter windows say little about a pace
PLAIN = re.compile(r"^cu(da)?|_v\d+|_ptsz|_ptds")
Series = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Seconds at one pace, not all of them next to each other."""

    spans: tuple[tuple[int, int], ...]
    steps: float
    wall_ns: int

    @property
    def first_ns(self) -> int:
        return self.spans[0][0]

    @property
    def last_ns(self) -> int:
        return self.spans[-1][1]

    @property
    def step_ns(self) -> float:
        return self.wall_ns / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one job. `slow` is None where the pace held."""

    op: int
    usual: Stretch
    slow: Stretch | None = None

    @property
    def excess_ns(self) -> int:
        """What the slow steps took longer than usual ones would have."""
        if self.slow is None:
            return 0
        return max(0, int(self.slow.wall_ns - self.slow.steps * self.usual.step_ns))


def pace_of(
    seconds: Records,
    names: Mapping[int, str],
    walls: Mapping[int, int],
    first_ns: int,
    last_ns: int,
    step_op: int | None,
    questions: Collection[int] = (),
    young: bool = False,
) -> Pace | None:
    """`seconds`: calls of a process by second and operation; `walls`: how long each window of its
    feeding thread was, by start; `questions`: calls that only ask, which no trouble adds to a step: they
    decide where there are any; `young`: it may still be starting when it is first seen. None where
    nothing repeats, or nothing was counted exactly."""
    # The first and the last window are cut.
    starts = np.array(sorted(at for at in walls if first_ns <= at < last_ns)[1:-1], np.int64)
    lengths = np.array([walls[int(at)] for at in starts], np.float64)
    whole = lengths >= WHOLE * np.median(lengths) if len(lengths) else np.zeros(0, bool)
    starts, lengths = starts[whole], lengths[whole]
    estimated = set(seconds["op"][seconds["exact"] == 0].tolist())
    exact = seconds[~np.isin(seconds["op"], list(estimated))]
    counts = _once(_steady_counts(exact, starts), names, step_op)
    if len(starts) < 2 or not counts:
        return None
    step_op = step_op if step_op in counts else min(counts, key=lambda op: counts[op].sum())
    steps = counts[step_op]
    counts = {op: each for op, each in counts.items() if op in questions} or counts
    table = np.stack(list(counts.values()))
    logs = _logs(table, lengths)
    segments = _segments(logs, _noise(logs, table))
    usual, slow = _usual_and_slow(logs, segments, young)
    return _made(step_op, steps, table, starts, lengths, usual, slow)


def last_step_ns(seconds: Records, walls: Mapping[int, int]) -> int | None:
    """When the last second with the calls of its loop began."""
    starts = np.array(sorted(walls), np.int64)
    counts = _steady_counts(seconds[seconds["exact"] > 0], starts, OFTEN)
    last = [int(starts[np.flatnonzero(each)[-1]]) for each in counts.values()]
    return sorted(last)[(len(last) - 1) // 2] if last else None


def _steady_counts(seconds: Records, starts: NDArray[np.int64], part: float = STEADY) -> dict[int, Series]:
    """Of calls that come in so many of the seconds."""
    found: dict[int, Series] = {}
    for op in np.unique(seconds["op"]).tolist():
        rows = seconds[seconds["op"] == op]
        rows = rows[np.isin(rows["start_ns"], starts)]
        if rows["count"].sum() < LEAST_CALLS:
            continue
        counts = np.zeros(len(starts))
        np.add.at(counts, np.searchsorted(starts, rows["start_ns"]), rows["count"])
        if (counts > 0).sum() >= part * len(starts):
            found[op] = counts
    return found


def _once(counts: dict[int, Series], names: Mapping[int, str], step_op: int | None) -> dict[int, Series]:
    """A call of the runtime and the driver's inside it have one voice."""
    kept: dict[str, int] = {}
    for op in sorted(counts, key=lambda op: (op != step_op, -counts[op].sum())):
        kept.setdefault(PLAIN.sub("", names.get(op, str(op))), op)
    return {op: counts[op] for op in kept.values()}


def _logs(table: Series, lengths: Series) -> Series:
    """The logarithm of how often each call came, second by second; a second without one is a small part."""
    rates = table / lengths
    return np.asarray(np.log(np.maximum(rates, SILENT * rates.mean(axis=1, keepdims=True))), np.float64)


def _noise(logs: Series, table: Series) -> Series:
    """What a second differs from the next by, of each call; and half a call more or less is chance."""
    steps = np.abs(np.diff(logs, axis=1))
    own = np.median(steps, axis=1) / 0.954 if steps.shape[1] else np.zeros(len(logs))
    chance = 0.5 / np.maximum(table.mean(axis=1), 0.5)
    return np.asarray(np.maximum(np.maximum(own, 0.01), chance), np.float64)


def _agreed(ratios: Series) -> int:
    """Which call says by how much the pace changed: the one in the middle.

    Of two in the middle the one that changed less: calls that a trouble adds to every step may change
    by any factor, the pace does not.
    """
    order = np.argsort(ratios)
    low, high = order[(len(order) - 1) // 2], order[len(order) // 2]
    return int(min(low, high, key=lambda at: abs(ratios[at])))


def _segments(logs: Series, noise: Series) -> list[tuple[int, int]]:
    """Stretches of one pace, as (first, behind the last)."""
    done: list[tuple[int, int]] = []
    todo = [(0, logs.shape[1])]
    while todo:
        first, last = todo.pop()
        at = _change(logs[:, first:last], noise) if len(done) + len(todo) < MOST_CHANGES else None
        if at is None:
            done.append((first, last))
        else:
            todo += [(first, first + at), (first + at, last)]
    return sorted(done)


def _change(logs: Series, noise: Series) -> int | None:
    """Where the two sides differ most, if they surely do."""
    count = logs.shape[1]
    if count < 2:
        return None
    at = np.arange(1, count)
    sums = np.concatenate([np.zeros((len(logs), 1)), np.cumsum(logs, axis=1)], axis=1)
    ratios = (sums[:, -1:] - sums[:, at]) / (count - at) - sums[:, at] / at
    errors = noise[:, None] * np.sqrt(1 / at + 1 / (count - at))
    best = int(np.argmax((np.abs(ratios) / errors).mean(axis=0)))
    op = _agreed(ratios[:, best])
    sure = abs(ratios[op, best]) > max(SURE * errors[op, best], -np.log(1 - LEAST_FALL))
    return int(at[best]) if sure else None


def _usual_and_slow(
    logs: Series, segments: list[tuple[int, int]], young: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which seconds have the usual pace, and which a lower one."""
    means = [logs[:, first:last].mean(axis=1) for first, last in segments]
    lengths = np.array([last - first for first, last in segments])
    count = logs.shape[1]
    enough = lengths >= max(USUAL_WINDOWS, min(5, USUAL_PART * count))
    chosen = [
        at for at in range(len(segments)) if enough[at] or (not enough.any() and lengths[at] == lengths.max())
    ]

    def against(one: int, other: int) -> float:
        ratios = means[one] - means[other]
        return float(ratios[_agreed(ratios)])

    best = max(chosen, key=lambda at: sum(against(at, other) > 0 for other in chosen))
    usual, slow = np.zeros(count, bool), np.zeros(count, bool)
    starting = young
    for at, (first, last) in enumerate(segments):
        falls = against(at, best) < np.log(1 - LEAST_FALL)
        starting = starting and falls
        if falls and (starting or lengths[at] < LEAST_WINDOWS):
            continue  # what began or ended amid a second fills a part of it
        (slow if falls else usual)[first:last] = True
    return usual, slow


def _made(
    op: int,
    counted: Series,
    table: Series,
    starts: NDArray[np.int64],
    lengths: Series,
    usual: NDArray[np.bool_],
    slow: NDArray[np.bool_],
) -> Pace | None:
    """Steps are counted where the pace was usual; by how much it fell, all calls say together."""
    steps, wall_ns = float(counted[usual].sum()), float(lengths[usual].sum())
    if not steps:
        return None
    found = Pace(op, Stretch(tuple(_spans(starts[usual], lengths[usual])), steps, int(wall_ns)))
    if not slow.any():
        return found
    slow_ns = float(lengths[slow].sum())
    before, after = table[:, usual].sum(axis=1) / wall_ns, table[:, slow].sum(axis=1) / slow_ns
    ratios = np.log(np.maximum(after, SILENT * before) / np.maximum(before, 1e-30))
    made = steps / wall_ns * slow_ns * float(np.exp(ratios[_agreed(ratios)]))
    if slow_ns / made < found.usual.step_ns / (1 - LEAST_FALL):
        return found
    return replace(found, slow=Stretch(tuple(_spans(starts[slow], lengths[slow])), made, int(slow_ns)))


def _spans(starts: NDArray[np.int64], lengths: Series) -> list[tuple[int, int]]:
    """Windows that touch are one span."""
    spans: list[tuple[int, int]] = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        end = start + max(int(length), 1)
        if spans and start - spans[-1][1] < 500_000_000:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans
