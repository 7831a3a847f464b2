"""Ratios of two things measured alternately, with an interval that says how sure they are.

Segments are mirrored (A B B A), so that a machine that slowly gets faster or slower
favours neither. The interval is a bootstrap over rounds: what a round has in common
(a busy neighbour, a clock change) stays together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 4000
SEED = 20_240


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and the 95 % interval around it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def excludes(self, value: float) -> bool:
        return not self.low <= value <= self.high

    def rounded(self, digits: int = 0) -> str:
        return f"{self.value:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def mirrored(names: list[str]) -> list[str]:
    """A B becomes A B B A."""
    return [*names, *reversed(names)]


def ratio_of_medians(upper: NDArray[np.float64], lower: NDArray[np.float64]) -> Interval:
    """Median over median; one row per round, one column per segment of the round."""
    return _resampled(upper, lower, lambda a, b: a / b)


def difference_of_medians(upper: NDArray[np.float64], lower: NDArray[np.float64]) -> Interval:
    return _resampled(upper, lower, lambda a, b: a - b)


def _resampled(upper: NDArray[np.float64], lower: NDArray[np.float64], join: np.ufunc | object) -> Interval:
    assert callable(join)
    rounds = len(upper)
    chosen = np.random.default_rng(SEED).integers(0, rounds, (RESAMPLES, rounds))
    tops = np.median(upper[chosen].reshape(RESAMPLES, -1), axis=1)
    bottoms = np.median(lower[chosen].reshape(RESAMPLES, -1), axis=1)
    low, high = np.quantile(join(tops, bottoms), (0.025, 0.975))
    return Interval(float(join(np.median(upper), np.median(lower))), float(low), float(high))
