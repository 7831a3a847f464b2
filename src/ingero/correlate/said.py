"""Steps that a job says itself, by labels (`step=120`): how many fell into each second.

A job that says every tenth step, or whose messages were lost, has made the steps in
between all the same: the numbers tell, and between two of them steps are taken to be
alike. Before the first label and after the last one nothing is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingero.model.facts import Marks

OFTEN = 5.0  # steps a second: of fewer, calls say more about single seconds
LEAST_SECONDS = 3  # from the first label to the last
FAR = 1000  # times the usual distance of two labels: not steps, but another count
PART = 0.5  # of the seconds seen: with fewer, labels are about something else
Series = NDArray[np.float64]


def said_steps(said: Marks, starts: NDArray[np.int64], lengths: Series) -> tuple[NDArray[np.bool_], Series]:
    """Which seconds are known, and the steps in each; none where the labels do not tell.

    `said`: instants and numbers, oldest first.
    """
    nothing = np.zeros(len(starts), bool), np.zeros(0)
    if len(said) < 2 or not len(starts):
        return nothing
    made = np.concatenate([[0.0], np.cumsum(_steps(said[:, 1]))])
    inside = (starts >= said[0, 0]) & (starts + lengths <= said[-1, 0])
    if inside.sum() < max(LEAST_SECONDS, PART * len(starts)):
        return nothing
    ends = (starts + lengths)[inside]
    counts = np.interp(ends, said[:, 0], made) - np.interp(starts[inside], said[:, 0], made)
    wall_s = float(lengths[inside].sum()) / 1e9
    return (inside, counts) if counts.sum() >= OFTEN * wall_s else nothing


def _steps(numbers: NDArray[np.int64]) -> Series:
    """From each label to the next; a count that began anew, or jumped, is one step."""
    apart = np.diff(numbers.astype(np.float64))
    usual = np.median(apart[apart > 0]) if (apart > 0).any() else 1.0
    return np.asarray(np.where((apart > 0) & (apart <= FAR * usual), apart, 1.0), np.float64)
