"""Steps a second, from the job's own record."""

from __future__ import annotations

from collections.abc import Sequence


def steps_per_s(ends_ns: Sequence[int], from_ns: int, to_ns: int) -> float | None:
    """Whole steps that ended within, over the time between their ends; few steps count by the time itself."""
    within = [end for end in ends_ns if from_ns <= end <= to_ns]
    if len(within) >= 4:
        return (len(within) - 1) / ((within[-1] - within[0]) / 1e9)
    if to_ns <= from_ns:
        return None
    return len(within) / ((to_ns - from_ns) / 1e9)


def loss(before: float | None, after: float | None) -> float | None:
    """The part of the pace that is gone."""
    if not before or after is None:
        return None
    return 1 - after / before
