"""Iterations that stand out at regular distances in time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.steps import durations
from ingero.model.facts import Marks

LEAST_SPIKES = 3  # two equal distances; fewer prove nothing
LONGER = 2.0  # times the usual iteration
LEAST_NS = 20_000_000  # shorter ones are the scheduler's ticks and other noise
RARE = 0.08  # of the iterations among them at most: every tenth is the program's own way (accumulation, logs)
REGULAR = 0.15  # spread of the distances, of their mean
EXACT = 0.05  # the same where three spikes are all there is
ALIKE = 1 / 3  # of the longest spike's excess
FED = 0.5  # of the spikes
LEAST_STEPS = 20  # to know what is usual
WAITED = 0.1  # of a spike: a wait for the GPU at its end that is longer, and than usual, shows work
QUEUED = 2  # iterations that may be queued when it begins


def no_spikes() -> NDArray[np.int64]:
    return np.zeros((0, 2), np.int64)


def spikes_in(marks: Marks, from_ns: int, to_ns: int, work: Callable[[], Marks]) -> NDArray[np.int64]:
    """(n, 2): start and excess of regular spikes between two instants; empty where there are none.

    An iteration still under way at the end is one as far as it has come.

    `work` reads the recorded launches, one in twenty milliseconds at least: a long iteration
    amid which the GPU was given work is an evaluation, not a stall.
    """
    steps = durations(marks)
    steps = steps[steps[:, 0] >= from_ns]
    if len(steps) < LEAST_STEPS:
        return no_spikes()
    usual = int(np.median(steps[:, 1]))
    long = steps[(steps[:, 1] > LONGER * usual) & (steps[:, 1] - usual > LEAST_NS)]
    last_ns = int(steps[-1].sum())
    still = np.array([(last_ns, to_ns - last_ns)], np.int64)
    goes_on = still[0, 1] > LONGER * usual and still[0, 1] - usual > LEAST_NS
    found = [np.concatenate([long, still]), long] if goes_on else [long]
    found += [_alike(spikes, usual) for spikes in found]
    for spikes in found:
        if _is_regular(spikes, _among(spikes, steps[:, 0])) and _fed(spikes, work()[:, 0]) <= FED * len(
            spikes
        ):
            return np.stack([spikes[:, 0], spikes[:, 1] - usual], axis=1)
    return no_spikes()


def waits_in(waits: Marks, usual: float, from_ns: int, work: Callable[[], Marks]) -> NDArray[np.int64]:
    """(n, 2): regular long waits of the thread that drives the GPU, where no call marks its iterations.

    While it waits it gives the GPU nothing, and what was queued is soon done: the time is lost. `usual`:
    length of an iteration, at most.
    """
    long = waits[(waits[:, 0] >= from_ns) & (waits[:, 1] > LONGER * usual) & (waits[:, 1] >= LEAST_NS)]
    for spikes in (long, _alike(long, 0)):
        if _is_regular(spikes, _reach_ns(spikes) / usual) and _fed(spikes, work()[:, 0]) <= FED * len(spikes):
            return np.stack([spikes[:, 0], spikes[:, 1]], axis=1)
    return no_spikes()


def surely_idle_ns(spikes: NDArray[np.int64], usual: float) -> int:
    """Of such waits: the time after what may have been queued is done."""
    return int(np.maximum(spikes[:, 1] - QUEUED * usual, 0).sum())


def idle_ns(spikes: NDArray[np.int64], marks: Marks, launches: NDArray[np.int64]) -> int:
    """How long the GPU surely had nothing to do in spikes that compute, where every launch was seen.

    Nothing is given to it amid the spike, and it is not waited for at the end: what was queued is long done.
    One still under way counts as far as it has come.
    """
    if not len(spikes):
        return 0
    steps = durations(marks)
    usual, usually_waits = int(np.median(steps[:, 1])), float(np.median(marks[:, 1]))
    known = dict(
        zip(steps[:, 0].tolist(), zip(steps[:, 1].tolist(), marks[1:, 1].tolist(), strict=True), strict=True)
    )
    total = 0
    for start, excess in spikes.tolist():
        length, waited = known.get(start, (excess + usual, 0))
        one = np.array([(start, length)], np.int64)
        if waited <= max(2 * usually_waits, WAITED * length) and not _fed(one, launches):
            total += max(length - waited - QUEUED * usual, 0)
    return total


def waited_ns(spikes: NDArray[np.int64], marks: Marks, launches: NDArray[np.int64]) -> int:
    """How much of the spikes is the wait for the GPU at their end, beyond the usual one.

    Only where nothing is given to the GPU amid the spike: an evaluation is the job's own work.
    """
    steps = durations(marks)
    usually = float(np.median(marks[:, 1]))
    known = dict(zip(steps[:, 0].tolist(), marks[1:, 1].tolist(), strict=True))
    total = 0.0
    for start, excess in spikes.tolist():
        waited = known.get(start, 0) - usually
        if waited > 0 and not _fed(np.array([(start, excess)], np.int64), launches):
            total += min(waited, excess)
    return int(total)


def _alike(spikes: NDArray[np.int64], usual: int) -> NDArray[np.int64]:
    """Without those that are far shorter than the longest: a hiccup among them is none of them."""
    excess = spikes[:, 1] - usual
    alike: NDArray[np.int64] = spikes[excess >= ALIKE * excess.max(initial=0)]
    return alike


def _reach_ns(spikes: NDArray[np.int64]) -> int:
    """From the first to the last."""
    return int(spikes[-1, 0] - spikes[0, 0]) if len(spikes) else 0


def _among(spikes: NDArray[np.int64], starts: NDArray[np.int64]) -> int:
    """Iterations from the first to the last: where all of them are long, the job has become slower."""
    first, last = np.searchsorted(starts, spikes[[0, -1], 0]) if len(spikes) else (0, 0)
    return int(last - first)


def _is_regular(spikes: NDArray[np.int64], among: float) -> bool:
    """`among`: iterations from the first to the last."""
    if len(spikes) < LEAST_SPIKES or len(spikes) - 1 > RARE * among:
        return False
    apart = np.diff(spikes[:, 0])
    return bool(apart.std() <= (REGULAR if len(spikes) > LEAST_SPIKES else EXACT) * apart.mean())


def _fed(spikes: NDArray[np.int64], launches: NDArray[np.int64]) -> int:
    """Spikes with a launch in their middle third."""
    third = spikes[:, 1] // 3
    first = np.searchsorted(launches, spikes[:, 0] + third)
    last = np.searchsorted(launches, spikes[:, 0] + 2 * third)
    return int((last > first).sum())
