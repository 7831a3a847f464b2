"""Pace: how many steps a job makes in a second, when that changed, and what was usual.

Where the job says its steps itself, by labels, those are the steps. Else they are read
from calls that are counted exactly, second by second: whatever else a trouble adds to a
step, most calls of the loop come as often as there are steps. So the pace is what most of
them agree on, and one call that is suddenly made a hundred times a step does not hide that
there are fewer steps.

Usual is the fastest pace the job kept for a while; slow is what lies a tenth or more
below it. Its start, and what comes after its last step, are no pace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.steps import said_steps
from ingero.model.facts import Marks
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
SAME_PACE = 0.3  # of the logarithm: slow times that differ by less are one trouble
BY_THE_CLOCK = 0.1  # of what other calls vary by: then it has nothing to do with the steps
MOST_SPANS = 40  # that a stretch is made of
MOSTLY_EXACT = 0.8  # of the seconds of a call: then a few estimates among them do no harm
SILENT = 0.02  # of the usual: a second without a step counts as this much
WHOLE = 0.3  # of a second: shorter windows say little about a pace
PLAIN = re.compile(r"^cu(da)?|_v\d+|_ptsz|_ptds")
Series = NDArray[np.float64]
NOT_SAID: Marks = np.zeros((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class PaceStretch:
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
    """Of one job. `slow` is empty where the pace held; each is a pace of its own.

    `op`: the call that comes once a step; None where the job says its steps itself.
    """

    usual: PaceStretch
    slow: tuple[PaceStretch, ...] = ()
    op: int | None = None

    @property
    def now(self) -> PaceStretch:
        """The pace at the end."""
        return max((self.usual, *self.slow), key=lambda each: each.last_ns)

    def in_steps(self, calls_per_step: float) -> Pace:
        """What was counted comes so often in each step."""
        usual, *slow = (replace(each, steps=each.steps / calls_per_step) for each in (self.usual, *self.slow))
        return replace(self, usual=usual, slow=tuple(slow))

    def excess_ns(self, slow: PaceStretch) -> int:
        """What slow steps took longer than usual ones would have."""
        return max(0, int(slow.wall_ns - slow.steps * self.usual.step_ns))


def pace_of(
    seconds: Records,
    names: Mapping[int, str],
    walls: Mapping[int, int],
    first_ns: int,
    last_ns: int,
    step_op: int | None,
    questions: Collection[int] = (),
    young: bool = False,
    said: Marks = NOT_SAID,
) -> Pace | None:
    """`seconds`: calls of a process by second and operation; `walls`: how long each window of its
    feeding thread was, by start; `questions`: calls that only ask, which no trouble adds to a step: they
    decide where there are any; `young`: it may still be starting when it is first seen; `said`: when
    it said the number of a step. None where nothing repeats, or nothing was counted exactly."""
    # The first and the last window are cut.
    starts = np.array(sorted(at for at in walls if first_ns <= at < last_ns)[1:-1], np.int64)
    lengths = np.array([walls[int(at)] for at in starts], np.float64)
    whole = lengths >= WHOLE * np.median(lengths) if len(lengths) else np.zeros(0, bool)
    starts, lengths = starts[whole], lengths[whole]
    if len(starts) < 2:
        return None
    known, steps = said_steps(said, starts, lengths)
    if known.any():
        return _paced(steps, steps[None], starts[known], lengths[known], young)
    counts = _once(_steady_counts(_mostly_exact(seconds), starts), names, step_op)
    if not counts:
        return None
    step_op = step_op if step_op in counts else min(counts, key=lambda op: counts[op].sum())
    table = np.stack(list(_deciding(counts, questions, lengths).values()))
    pace = _paced(counts[step_op], table, starts, lengths, young)
    return replace(pace, op=step_op) if pace else None


def _paced(
    steps: Series, table: Series, starts: NDArray[np.int64], lengths: Series, young: bool
) -> Pace | None:
    """`table`: what decides on how the pace changed, each in a row."""
    logs = _logs(table, lengths)
    segments = _segments(logs, _noise(logs, table))
    usual, slow = _usual_and_slow(logs, segments, young)
    return _made(steps, table, starts, lengths, usual, slow)


def _mostly_exact(seconds: Records) -> Records:
    """Of calls that are counted exactly in nearly all seconds."""
    ops, which = np.unique(seconds["op"], return_inverse=True)
    parts = np.bincount(which, seconds["exact"] > 0) / np.maximum(np.bincount(which), 1) if len(ops) else ops
    return np.asarray(seconds[np.isin(seconds["op"], ops[parts >= MOSTLY_EXACT])])


def _deciding(counts: dict[int, Series], questions: Collection[int], lengths: Series) -> dict[int, Series]:
    """Questions, unless somebody asks by the clock: always as often, whatever the rest does."""
    rates = {op: each / lengths for op, each in counts.items()}
    varies = {op: float(np.std(rate)) / max(float(np.mean(rate)), 1e-30) for op, rate in rates.items()}
    most = max(varies.values())
    asked = {op: each for op, each in counts.items() if op in questions and varies[op] >= BY_THE_CLOCK * most}
    return asked or counts


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


def _agreed(ratios: Series) -> NDArray[np.int64]:
    """Which call says by how much the pace changed, for each column: the one in the middle.

    Of two in the middle the one that changed less: calls that a trouble adds to every step may change
    by any factor, the pace does not.
    """
    order = np.argsort(ratios, axis=0)
    low, high = order[(len(order) - 1) // 2], order[len(order) // 2]
    sizes = np.abs(np.stack([np.take_along_axis(ratios, side[None], 0)[0] for side in (low, high)]))
    return np.asarray(np.where(sizes[0] <= sizes[1], low, high)[None], np.int64)


def _agreed_ratio(ratios: Series) -> float:
    column = ratios[:, None]
    return float(np.take_along_axis(column, _agreed(column), 0)[0, 0])


def _segments(logs: Series, noise: Series) -> list[tuple[int, int]]:
    """Stretches of one pace, as (first, behind the last).

    From single seconds upwards: neighbours that do not surely differ become one, the most alike first.
    So a fault of some seconds amid an hour stands out as it does amid a minute.
    """
    edges = np.arange(logs.shape[1] + 1)
    sums = np.concatenate([np.zeros((len(logs), 1)), np.cumsum(logs, axis=1)], axis=1)
    while len(edges) > 2:
        lengths = np.diff(edges)
        means = np.diff(sums[:, edges], axis=1) / lengths
        ratios = np.diff(means, axis=1)
        errors = noise[:, None] * np.sqrt(1 / lengths[1:] + 1 / lengths[:-1])
        which = _agreed(ratios)
        ratio = np.abs(np.take_along_axis(ratios, which, 0)[0])
        error = np.take_along_axis(errors, which, 0)[0]
        alike = ratio / np.maximum(SURE * error, -np.log(1 - LEAST_FALL))
        behind, before = np.append(alike[1:], np.inf), np.append(np.inf, alike[:-1])
        merged = (alike <= 1) & (alike <= before) & (alike < behind)
        if not merged.any():
            merged = alike <= 1  # equals in a row
            if not merged.any():
                break
            merged &= np.cumsum(merged) == 1
        edges = np.delete(edges, np.flatnonzero(merged) + 1)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _usual_and_slow(
    logs: Series, segments: list[tuple[int, int]], young: bool
) -> tuple[NDArray[np.bool_], list[NDArray[np.bool_]]]:
    """Which seconds have the usual pace, and which a lower one: those of about one pace together."""
    means = [logs[:, first:last].mean(axis=1) for first, last in segments]
    lengths = np.array([last - first for first, last in segments])
    count = logs.shape[1]
    enough = lengths >= max(USUAL_WINDOWS, min(5, USUAL_PART * count))
    chosen = [
        at for at in range(len(segments)) if enough[at] or (not enough.any() and lengths[at] == lengths.max())
    ]

    def against(one: int, other: int) -> float:
        return _agreed_ratio(means[one] - means[other])

    longest = int(np.argmax(lengths))
    best = max(chosen, key=lambda at: against(at, longest))
    usual, slow = np.zeros(count, bool), list[NDArray[np.bool_]]()
    starting, before = young, 0.0
    for at, (first, last) in enumerate(segments):
        level = against(at, best)
        falls = level < np.log(1 - LEAST_FALL)
        starting = starting and falls
        if falls and (starting or lengths[at] < LEAST_WINDOWS):
            continue  # what began or ended amid a second fills a part of it
        if not falls:
            usual[first:last] = True
            continue
        if not slow or abs(level - before) > SAME_PACE:  # another trouble, or another phase of the job
            slow.append(np.zeros(count, bool))
        slow[-1][first:last], before = True, level
    return usual, slow


def _made(
    counted: Series,
    table: Series,
    starts: NDArray[np.int64],
    lengths: Series,
    usual: NDArray[np.bool_],
    slow: list[NDArray[np.bool_]],
) -> Pace | None:
    """Steps are counted where the pace was usual; by how much it fell, all calls say together."""
    usual = _longest(usual)
    steps, wall_ns = float(counted[usual].sum()), float(lengths[usual].sum())
    if not steps:
        return None
    before = table[:, usual].sum(axis=1) / wall_ns
    stretches = []
    for mask in slow:
        chosen = _longest(mask)
        slow_ns = float(lengths[chosen].sum())
        after = table[:, chosen].sum(axis=1) / slow_ns
        ratios = np.log(np.maximum(after, SILENT * before) / np.maximum(before, 1e-30))
        made = steps / wall_ns * slow_ns * float(np.exp(_agreed_ratio(ratios)))
        if slow_ns / made >= wall_ns / steps / (1 - LEAST_FALL):
            stretches.append(PaceStretch(tuple(_spans(starts[chosen], lengths[chosen])), made, int(slow_ns)))
    found = PaceStretch(tuple(_spans(starts[usual], lengths[usual])), steps, int(wall_ns))
    return Pace(found, tuple(stretches))


def _longest(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of seconds in very many runs those in the longest: a question to a database has an end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    runs = sorted(
        zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True), key=lambda run: run[0] - run[1]
    )
    kept = np.zeros(len(mask), bool)
    for first, last in runs[:MOST_SPANS]:
        kept[first:last] = True
    return kept


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
