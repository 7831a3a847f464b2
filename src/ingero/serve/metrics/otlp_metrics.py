"""A snapshot as an OTLP request: cumulative sums, gauges and exponential histograms.

Our histograms have eight slots an octave, evenly spaced; exponential ones of scale 3 have
eight, spaced by a constant factor. A slot goes whole to the bucket its middle lies in: no
call is lost, and none is off by more than our own slots are wide, an eighth.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ingero import __version__
from ingero.model.histogram import MIN_BITS, Counts, lower_bounds
from ingero.model.metrics import BY_NAME, LABELS, PROCESS, Distribution, Kind, SeriesPoint, Snapshot
from ingero.model.metrics import Metric as Row

SCALE = 3
ZERO_S = 2**MIN_BITS / 1e9  # below it we do not tell durations apart
_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def _buckets() -> NDArray[np.int64]:
    """The bucket of each slot but the first: base**i < value <= base**(i+1), in seconds."""
    bounds = lower_bounds()
    middles = (bounds[1:-1] + bounds[2:]) / 2e9
    found: NDArray[np.int64] = (np.ceil(np.log2(middles) * 2**SCALE) - 1).astype(np.int64)
    return found


BUCKET_OF = _buckets()


def encode(snapshot: Snapshot, host: Mapping[str, Value]) -> bytes:
    """The body of a request."""
    request = ExportMetricsServiceRequest()
    parts: dict[tuple[str, ...], ScopeMetrics] = {}
    for name, row in BY_NAME.items():
        grouped: dict[tuple[str, ...], list[SeriesPoint]] = {}
        for point in snapshot.points.get(name, ()):
            who = point.labels[: len(PROCESS)] if row.of_process else ()
            grouped.setdefault(who, []).append(point)
        for who, points in grouped.items():
            if who not in parts:
                parts[who] = _part(request, who, host)
            parts[who].metrics.append(_metric(row, points, snapshot.at_ns))
    return bytes(request.SerializeToString())


def _part(
    request: ExportMetricsServiceRequest, who: tuple[str, ...], host: Mapping[str, Value]
) -> ScopeMetrics:
    about = process_resource(host, who) if who else resource(host)
    request.resource_metrics.append(
        ResourceMetrics(resource=about, scope_metrics=[ScopeMetrics(scope=SCOPE)])
    )
    part: ScopeMetrics = request.resource_metrics[-1].scope_metrics[0]
    return part


def _metric(row: Row, points: list[SeriesPoint], at_ns: int) -> Metric:
    metric = Metric(name=row.name, unit=row.unit, description=row.help)
    if row.kind is Kind.HISTOGRAM:
        found = [_distribution(row, point, at_ns) for point in points]
        metric.exponential_histogram.CopyFrom(
            ExponentialHistogram(data_points=found, aggregation_temporality=_CUMULATIVE)
        )
        return metric
    numbers = [_number(row, point, at_ns) for point in points]
    if row.kind is Kind.COUNTER:
        metric.sum.CopyFrom(Sum(data_points=numbers, aggregation_temporality=_CUMULATIVE, is_monotonic=True))
    else:
        metric.gauge.CopyFrom(Gauge(data_points=numbers))
    return metric


def _labels(row: Row, point: SeriesPoint) -> list[tuple[str, Value]]:
    pairs = zip(row.labels, point.labels, strict=True)
    skip = len(PROCESS) if row.of_process else 0  # those stand in the resource
    return [(LABELS[label][0], value) for label, value in list(pairs)[skip:]]


def _number(row: Row, point: SeriesPoint, at_ns: int) -> NumberDataPoint:
    assert not isinstance(point.value, Distribution)
    number = NumberDataPoint(
        attributes=attributes(_labels(row, point)),
        time_unix_nano=point.end_ns or at_ns,
        start_time_unix_nano=point.start_ns,
    )
    if isinstance(point.value, int) and -(2**63) <= point.value < 2**63:
        number.as_int = point.value
    else:
        number.as_double = float(point.value)
    return number


def _distribution(row: Row, point: SeriesPoint, at_ns: int) -> ExponentialHistogramDataPoint:
    value = point.value
    assert isinstance(value, Distribution)
    offset, counts = exponential(value.slots)
    found = ExponentialHistogramDataPoint(
        attributes=attributes(_labels(row, point)),
        time_unix_nano=point.end_ns or at_ns,
        start_time_unix_nano=point.start_ns,
        count=int(value.slots.sum()),
        sum=value.sum_ns / 1e9,
        scale=SCALE,
        zero_count=int(value.slots[0]),
        zero_threshold=ZERO_S,
        positive=ExponentialHistogramDataPoint.Buckets(offset=offset, bucket_counts=counts),
    )
    if value.max_ns:
        found.max = value.max_ns / 1e9
    return found


def exponential(slots: Counts) -> tuple[int, list[int]]:
    """Index of the first bucket, and the counts from there on."""
    used = np.flatnonzero(slots[1:])
    if not len(used):
        return 0, []
    first, last = int(BUCKET_OF[used[0]]), int(BUCKET_OF[used[-1]])
    counts = np.zeros(last - first + 1, np.uint64)
    np.add.at(counts, BUCKET_OF[used] - first, slots[1:][used])
    return first, [int(count) for count in counts]


# Whom OTLP data is about, in the words of OpenTelemetry's semantic conventions.
#
# The machine is one resource, each process with series of its own another. Every resource
# has a service.instance.id of its own: receivers that keep only that of a resource can still
# tell series apart.


SERVICE = "ingero"
SCOPE = InstrumentationScope(name="ingero", version=__version__)
Value = str | int | float | bool
PLACES = tuple(LABELS[name][0] for name in PROCESS)


def attributes(pairs: Iterable[tuple[str, Value]]) -> list[KeyValue]:
    """Those with a value; an empty string is none."""
    return [KeyValue(key=key, value=_any(value)) for key, value in pairs if value != ""]


def _any(value: Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=value)


def host_resource(node: str, environ: Mapping[str, str]) -> dict[str, Value]:
    """The machine and this agent; OTEL_RESOURCE_ATTRIBUTES adds, OTEL_SERVICE_NAME renames."""
    found: dict[str, Value] = {
        "service.name": SERVICE,
        "service.version": __version__,
        "service.instance.id": node,
        "host.name": node,
        "host.arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os.type": "linux",
    }
    for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            found[key.strip()] = unquote(value.strip())
    if environ.get("OTEL_SERVICE_NAME"):
        found["service.name"] = environ["OTEL_SERVICE_NAME"]
    return found


def process_values(labels: tuple[str, ...]) -> dict[str, Value]:
    """What stands in the labels of a process."""
    named: dict[str, Value] = dict(zip(PLACES, labels, strict=True))
    if labels[0].isdecimal():
        named["process.pid"] = int(labels[0])
    return {key: value for key, value in named.items() if value != ""}


def process_resource(host: Mapping[str, Value], labels: tuple[str, ...]) -> Resource:
    """The machine with one process on it."""
    name = f"{host['service.instance.id']}:{labels[0] or labels[1]}"
    values = {**host, **process_values(labels), "service.instance.id": name}
    return Resource(attributes=attributes(values.items()))


def resource(values: Mapping[str, Value]) -> Resource:
    return Resource(attributes=attributes(values.items()))
