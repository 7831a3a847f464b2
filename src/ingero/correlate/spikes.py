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
RARE = 0.08  # of the iterations at most: every tenth is the program's own way (accumulation, logs)
REGULAR = 0.15  # spread of the distances, of their mean
EXACT = 0.05  # the same where three spikes are all there is
FED = 0.5  # of the spikes
LEAST_STEPS = 20  # to know what is usual


def no_spikes() -> NDArray[np.int64]:
    return np.zeros((0, 2), np.int64)


def spikes_in(marks: Marks, from_ns: int, work: Callable[[], Marks]) -> NDArray[np.int64]:
    """(n, 2): start and excess of regular spikes after an instant; empty where there are none.

    `work` reads the recorded launches, one in twenty milliseconds at least: a long iteration
    amid which the GPU was given work is an evaluation, not a stall.
    """
    steps = durations(marks)
    steps = steps[steps[:, 0] >= from_ns]
    if len(steps) < LEAST_STEPS:
        return no_spikes()
    usual = int(np.median(steps[:, 1]))
    long = (steps[:, 1] > LONGER * usual) & (steps[:, 1] - usual > LEAST_NS)
    spikes = steps[long]
    if len(spikes) < LEAST_SPIKES or len(spikes) > RARE * len(steps):
        return no_spikes()
    apart = np.diff(spikes[:, 0])
    if apart.std() > (REGULAR if len(spikes) > LEAST_SPIKES else EXACT) * apart.mean():
        return no_spikes()
    if _fed(spikes, work()[:, 0]) > FED * len(spikes):
        return no_spikes()
    return np.stack([spikes[:, 0], spikes[:, 1] - usual], axis=1)


def _fed(spikes: NDArray[np.int64], launches: NDArray[np.int64]) -> int:
    """Spikes with a launch in their middle third."""
    third = spikes[:, 1] // 3
    first = np.searchsorted(launches, spikes[:, 0] + third)
    last = np.searchsorted(launches, spikes[:, 0] + 2 * third)
    return int((last > first).sum())
