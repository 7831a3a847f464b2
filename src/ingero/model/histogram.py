"""Latency histograms: log-linear slots, as the probes fill them.

Slot 0 holds everything below 64 ns, then each octave has 8 slots, and the last
slot everything from four minutes up: a value read back is off by at most 1/8.
Histograms add up, so seconds become minutes and processes become machines.
Stored as one width byte and packed (slot, count) pairs, which NumPy decodes by
the thousand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ingero.model.layout import Hist

MIN_BITS = int(Hist.HIST_MIN_BITS)
SUB_BITS = int(Hist.HIST_SUB_BITS)
SLOTS = int(Hist.HIST_SLOTS)
_SUB = 1 << SUB_BITS
_WIDTHS = (1, 2, 4, 8)
_PAIRS = {w: np.dtype([("slot", "u1"), ("count", f"<u{w}")]) for w in _WIDTHS}

Counts = NDArray[np.uint64]


def slot_of(values_ns: ArrayLike) -> NDArray[np.int64]:
    """The slot each duration falls into."""
    values = np.asarray(values_ns, np.uint64)
    octave = _floor_log2(np.maximum(values, np.uint64(1 << MIN_BITS)))
    sub = (values >> (octave - SUB_BITS).astype(np.uint64)).astype(np.int64) & (_SUB - 1)
    slots = 1 + (octave - MIN_BITS) * _SUB + sub
    return np.where(values < (1 << MIN_BITS), 0, np.minimum(slots, SLOTS - 1))


def _floor_log2(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    # A float has 53 bits: near 2**64 it rounds up to the next octave, so look again.
    guess = np.minimum(np.log2(values.astype(np.float64)).astype(np.int64), 63)
    return guess - (values < (np.uint64(1) << guess.astype(np.uint64)))


def lower_bounds() -> NDArray[np.float64]:
    """The smallest duration of each slot, and the end of the last one."""
    octave, sub = np.divmod(np.arange(SLOTS, dtype=np.float64), _SUB)
    bounds = (1 + sub / _SUB) * 2.0 ** (octave + MIN_BITS)
    return np.concatenate(([0.0], bounds))


_BOUNDS = lower_bounds()


def percentiles(
    slots: ArrayLike, shares: Sequence[float], min_ns: int | None = None, max_ns: int | None = None
) -> list[int | None]:
    """Durations below which each share of the calls lies; None for an empty histogram."""
    counts = np.asarray(slots, np.float64)
    total = counts.sum()
    if total == 0:
        return [None] * len(shares)
    reached = np.cumsum(counts)
    found: list[int | None] = []
    for share in shares:
        wanted = share * total
        slot = (
            int(np.searchsorted(reached, wanted, side="left")) if wanted > 0 else int(np.argmax(counts > 0))
        )
        inside = (wanted - (reached[slot] - counts[slot])) / counts[slot]
        value = _BOUNDS[slot] + (_BOUNDS[slot + 1] - _BOUNDS[slot]) * min(max(inside, 0.0), 1.0)
        found.append(_between(round(value), min_ns, max_ns))
    return found


def _between(value: int, low: int | None, high: int | None) -> int:
    if high is not None:
        value = min(value, high)
    return value if low is None else max(value, low)


def encode(slots: ArrayLike) -> bytes:
    """The histogram as stored: empty for no calls."""
    counts = np.asarray(slots, np.uint64)
    used = np.flatnonzero(counts)
    if not len(used):
        return b""
    largest = int(counts.max())
    width = next(w for w in _WIDTHS if largest < 1 << (8 * w))
    pairs = np.empty(len(used), _PAIRS[width])
    pairs["slot"], pairs["count"] = used, counts[used]
    return bytes([width]) + pairs.tobytes()


def decode(blob: bytes) -> Counts:
    """The 256 counts of one stored histogram."""
    counts: Counts = merge([blob], [0], 1)[0]
    return counts


def merge(blobs: Sequence[bytes], groups: ArrayLike, group_count: int) -> Counts:
    """Add up stored histograms by group: an array of group_count rows. Broken blobs raise ValueError."""
    into = np.zeros(group_count * SLOTS, np.uint64)
    group_of = np.asarray(groups, np.int64)
    width_of = np.fromiter((b[0] if b else 0 for b in blobs), np.uint8, len(blobs))
    if not np.isin(width_of, (0, *_WIDTHS)).all():
        raise ValueError("not a stored histogram: unknown width")
    for width in _WIDTHS:
        chosen = np.flatnonzero(width_of == width)
        if len(chosen):
            _add(into, [blobs[i][1:] for i in chosen.tolist()], group_of[chosen], _PAIRS[width])
    return into.reshape(group_count, SLOTS)


def _add(into: Counts, bodies: list[bytes], groups: NDArray[np.int64], pair: np.dtype[np.void]) -> None:
    lengths = np.fromiter(map(len, bodies), np.int64, len(bodies))
    if (lengths % pair.itemsize).any():
        raise ValueError("not a stored histogram: cut short")
    pairs = np.frombuffer(b"".join(bodies), pair)
    cells = np.repeat(groups * SLOTS, lengths // pair.itemsize) + pairs["slot"]
    np.add.at(into, cells, pairs["count"].astype(np.uint64))
