"""A round as OTLP: one request of metrics, and one of log records where there are findings.

The batch's name (run and number) stands in the scope, which every OpenTelemetry Collector in between
hands on with the data; a header would be lost there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ingero.model.fleet import (
    BUCKET,
    CLUSTER,
    FINDING_WORDS,
    GPU,
    GPU_INFO,
    GPU_SERIES,
    GPU_WORDS,
    JOB_INFO,
    JOB_SERIES,
    JOB_TIME,
    JOB_WORDS,
    NODE,
    NODE_SERIES,
    NUMBER,
    PID,
    RUN,
    FindingHealth,
    Health,
    Series,
)

_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_SEVERITIES: dict[str, Any] = {
    "CRITICAL": 21,
    "HIGH": 17,
    "MEDIUM": 13,
    "LOW": 9,
}  # OpenTelemetry's fatal, error, warn, info


def metrics(health: Health) -> bytes:
    """The body of a request to /v1/metrics."""
    made = _Metrics(health)
    made.add(NODE_SERIES, [({}, health)])
    made.add(JOB_SERIES, [({PID: each.pid}, each) for each in health.jobs])
    made.add(GPU_SERIES, [({GPU: each.gpu}, each) for each in health.gpus])
    made.info(JOB_INFO, [{PID: each.pid, **_words(each, JOB_WORDS)} for each in health.jobs])
    made.info(GPU_INFO, [{GPU: each.gpu, **_words(each, GPU_WORDS)} for each in health.gpus])
    spent = [
        ({PID: each.pid, BUCKET: bucket}, {"time_s": seconds})
        for each in health.jobs
        for bucket, seconds in each.time_s.items()
    ]
    made.add((Series("time_s", JOB_TIME, "s", over_round=True),), spent)
    scope = ScopeMetrics(scope=_scope(health), metrics=made.metrics)
    part = ResourceMetrics(resource=_resource(health), scope_metrics=[scope])
    return bytes(ExportMetricsServiceRequest(resource_metrics=[part]).SerializeToString())


def logs(health: Health) -> bytes | None:
    """The body of a request to /v1/logs; None without findings."""
    if not health.findings:
        return None
    records = [_record(each, health.at_ns) for each in health.findings]
    scope = ScopeLogs(scope=_scope(health), log_records=records)
    part = ResourceLogs(resource=_resource(health), scope_logs=[scope])
    return bytes(ExportLogsServiceRequest(resource_logs=[part]).SerializeToString())


class _Metrics:
    def __init__(self, health: Health) -> None:
        self._health = health
        self.metrics: list[Metric] = []

    def add(self, series: Iterable[Series], things: Sequence[tuple[Mapping[str, Any], Any]]) -> None:
        for each in series:
            points = [
                self._point(each, words, value)
                for words, thing in things
                if (value := _field(thing, each.field)) is not None
            ]
            if points:
                metric = Metric(name=each.metric, unit=each.unit)
                if each.over_round:
                    metric.sum.CopyFrom(
                        Sum(data_points=points, aggregation_temporality=_DELTA, is_monotonic=True)
                    )
                else:
                    metric.gauge.CopyFrom(Gauge(data_points=points))
                self.metrics.append(metric)

    def info(self, name: str, all_words: list[dict[str, Any]]) -> None:
        self.add((Series("one", name, "1", whole=True),), [(words, {"one": 1}) for words in all_words])

    def _point(self, series: Series, words: Mapping[str, Any], value: float) -> NumberDataPoint:
        point = NumberDataPoint(time_unix_nano=self._health.at_ns, attributes=_attributes(words))
        if series.over_round:
            point.start_time_unix_nano = self._health.from_ns
        if series.whole:
            point.as_int = int(value)
        else:
            point.as_double = value
        return point


def _field(thing: Any, name: str) -> Any:
    return thing[name] if isinstance(thing, dict) else getattr(thing, name)


def _words(thing: Any, words: Mapping[str, str]) -> dict[str, Any]:
    found = {attribute: getattr(thing, field) for field, attribute in words.items()}
    return {attribute: value for attribute, value in found.items() if value not in (None, "")}


def _record(finding: FindingHealth, at_ns: int) -> LogRecord:
    return LogRecord(
        time_unix_nano=finding.last_ns,
        observed_time_unix_nano=at_ns,
        severity_number=_SEVERITIES.get(finding.severity, 0),
        severity_text=finding.severity,
        event_name="ingero.fleet.finding",
        body=AnyValue(string_value=finding.title),
        attributes=_attributes(_words(finding, FINDING_WORDS)),
    )


def _resource(health: Health) -> Resource:
    found = {
        "service.name": "ingero",
        "service.version": health.version,
        "service.instance.id": health.node,
        NODE: health.node,
        CLUSTER: health.cluster,
    }
    return Resource(attributes=_attributes({key: value for key, value in found.items() if value}))


def _scope(health: Health) -> InstrumentationScope:
    named = _attributes({RUN: health.run, NUMBER: health.number})
    return InstrumentationScope(name="ingero.fleet", version=health.version, attributes=named)


def _attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any(value)) for key, value in values.items()]


def _any(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=str(value))
