"""A snapshot as Prometheus reads it.

Its histograms have fixed bounds: every second octave of ours, on which our slots end
too, so no call is counted on the wrong side of one. Text is made once per snapshot,
however many ask.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from ingero.model.histogram import MIN_BITS, SLOTS, SUB_BITS
from ingero.model.metrics import BY_NAME, Distribution, Kind, SeriesPoint, Snapshot
from ingero.model.metrics import Metric as Row

# From a microsecond (1024 ns) to seventeen seconds.
OCTAVES = tuple(range(10, 36, 2))
BOUNDS_S = tuple(f"{2**octave / 1e9:.9f}".rstrip("0").rstrip(".") for octave in OCTAVES)
_ENDS = np.array([1 + ((octave - MIN_BITS) << SUB_BITS) for octave in OCTAVES])
assert _ENDS[-1] < SLOTS

Read = Callable[[], Snapshot]


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """One family per row that has series."""
    for name, row in BY_NAME.items():
        points = snapshot.points.get(name)
        if points:
            yield _family(row, points)


def _family(row: Row, points: list[SeriesPoint]) -> Metric:
    if row.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(row.prometheus, row.help, labels=row.labels)
        for point in points:
            assert isinstance(point.value, Distribution)
            histogram.add_metric(point.labels, *_buckets(point.value))
        return histogram
    make = CounterMetricFamily if row.kind is Kind.COUNTER else GaugeMetricFamily
    family = make(row.prometheus, row.help, labels=row.labels)
    for point in points:
        assert not isinstance(point.value, Distribution)
        family.add_metric(point.labels, point.value)
    return family


def _buckets(value: Distribution) -> tuple[list[tuple[str, float]], float]:
    reached = np.concatenate(([0], np.cumsum(value.slots)))
    below = [(bound, float(count)) for bound, count in zip(BOUNDS_S, reached[_ENDS].tolist(), strict=True)]
    return [*below, ("+Inf", float(reached[-1]))], value.sum_ns / 1e9


class _Collector:
    """What prometheus_client asks."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return families(self._snapshot)


def text(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """What to answer, and its content type, in the form the asker likes best."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class SnapshotTexts:
    """The texts of the newest snapshot; one thread at a time makes one."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._of: Snapshot | None = None
        self._made: dict[tuple[str, bool], tuple[bytes, str]] = {}

    def get(self, accept: str, packed: bool) -> tuple[bytes, str]:
        with self._lock:
            snapshot = self._read()
            if snapshot is not self._of:
                self._of, self._made = snapshot, {}
            accept = _understood(accept)
            key = choose_encoder(accept)[1], packed
            if key not in self._made:
                body, content_type = text(snapshot, accept)
                self._made[key] = gzip.compress(body, 1) if packed else body, content_type
            return self._made[key]


def _understood(accept: str) -> str:
    """What is asked for, or nothing in particular: a version such as 1.0.x makes the library stumble."""
    try:
        choose_encoder(accept)
    except (TypeError, ValueError):
        return ""
    return accept
