"""Findings as OTLP log records, at once, and as spans, when they have ended.

A finding is a trace: the span of the finding, from its first to its last moment, with a
child for each episode. Ids are made from the finding itself, so a request that is sent
twice tells nothing twice.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from ingero import units
from ingero.model.finding import Cause, Finding, Severity
from ingero.serve.answers.finding_news import News, What
from ingero.serve.metrics.otlp_metrics import SCOPE, Value, attributes, process_values, resource

EPISODES = 64
CAUSES = 16
TEXT = 500
SEVERITIES = {
    Severity.CRITICAL: SeverityNumber.SEVERITY_NUMBER_FATAL,
    Severity.HIGH: SeverityNumber.SEVERITY_NUMBER_ERROR,
    Severity.MEDIUM: SeverityNumber.SEVERITY_NUMBER_WARN,
    Severity.LOW: SeverityNumber.SEVERITY_NUMBER_INFO,
}
Labels = Mapping[int, tuple[str, ...]]  # by process id


def encode_logs(news: Iterable[News], host: Mapping[str, Value], labels: Labels) -> bytes:
    """The body of a request with one record for each."""
    records = [_record(each, labels) for each in news]
    scope = ScopeLogs(scope=SCOPE, log_records=records)
    parts = [ResourceLogs(resource=resource(host), scope_logs=[scope])]
    return bytes(ExportLogsServiceRequest(resource_logs=parts).SerializeToString())


def encode_spans(news: Iterable[News], host: Mapping[str, Value], labels: Labels) -> bytes:
    """The body of a request with the spans of findings that ended."""
    spans = [span for each in news if each.what is What.ENDED for span in _spans(each, labels)]
    scope = ScopeSpans(scope=SCOPE, spans=spans)
    parts = [ResourceSpans(resource=resource(host), scope_spans=[scope])]
    return bytes(ExportTraceServiceRequest(resource_spans=parts).SerializeToString())


def ids(news: News) -> tuple[bytes, bytes]:
    """Trace and span."""
    digest = hashlib.sha256(f"{news.finding.id}:{news.opened_ns}".encode()).digest()
    return digest[:16], digest[16:24]


def _record(news: News, labels: Labels) -> LogRecord:
    finding, (trace, span) = news.finding, ids(news)
    return LogRecord(
        time_unix_nano=finding.last_ns if news.what is What.ENDED else finding.first_ns,
        observed_time_unix_nano=time.time_ns(),
        severity_number=SEVERITIES[finding.severity],
        severity_text=str(finding.severity),
        event_name=f"ingero.finding.{news.what}",
        body=AnyValue(string_value=units.clean(finding.title, TEXT)),
        attributes=attributes(_told(finding, labels).items()),
        trace_id=trace,
        span_id=span,
    )


def _spans(news: News, labels: Labels) -> list[Span]:
    finding, (trace, root) = news.finding, ids(news)
    whole = Span(
        trace_id=trace,
        span_id=root,
        name=f"finding {finding.kind}",
        kind=Span.SpanKind.SPAN_KIND_INTERNAL,
        start_time_unix_nano=finding.first_ns,
        end_time_unix_nano=max(finding.first_ns, finding.last_ns),
        attributes=attributes(_told(finding, labels).items()),
        events=[_event(finding, cause) for cause in finding.causes[:CAUSES]],
        status=Status(code=Status.StatusCode.STATUS_CODE_ERROR, message=units.clean(finding.title, TEXT)),
    )
    return [whole, *(_episode(news, begin, end) for begin, end in finding.episodes[:EPISODES])]


def _episode(news: News, begin_ns: int, end_ns: int) -> Span:
    trace, root = ids(news)
    own = hashlib.sha256(root + f"{begin_ns}".encode()).digest()[:8]
    return Span(
        trace_id=trace,
        span_id=own,
        parent_span_id=root,
        name=f"episode of {news.finding.kind}",
        kind=Span.SpanKind.SPAN_KIND_INTERNAL,
        start_time_unix_nano=begin_ns,
        end_time_unix_nano=max(begin_ns, end_ns),
    )


def _event(finding: Finding, cause: Cause) -> Span.Event:
    who = cause.who[0] if cause.who else None
    told: dict[str, Value] = {
        "ingero.bucket": cause.bucket,
        "ingero.cause.time": cause.ns / 1e9,
        "ingero.cause.share": cause.share,
        "ingero.cause.process": units.clean(who.comm, 120) if who else "",
        "ingero.cause.evidence": units.clean(cause.evidence[0].text, TEXT) if cause.evidence else "",
    }
    if who is not None and who.pid is not None:
        told["ingero.cause.pid"] = who.pid
    return Span.Event(time_unix_nano=finding.first_ns, name="cause", attributes=attributes(told.items()))


def _told(finding: Finding, labels: Labels) -> dict[str, Value]:
    victim = finding.victim
    known = labels.get(victim.pid, (str(victim.pid), units.clean(victim.comm, 120), "", "", ""))
    told: dict[str, Value] = {
        "ingero.finding.id": finding.id,
        "ingero.finding.kind": finding.kind,
        "ingero.finding.severity": str(finding.severity),
        "ingero.finding.confidence": finding.confidence,
        **process_values(known),
    }
    if victim.tid is not None:
        told["thread.id"] = victim.tid
    if finding.effect.op is not None:
        told["ingero.operation"] = finding.effect.op
    if finding.effect.wall_share is not None:
        told["ingero.finding.lost_time"] = finding.effect.wall_share
    if finding.gain is not None:
        told["ingero.finding.gain"] = finding.gain.share
    if finding.source is not None:
        told |= {
            "code.file.path": units.clean(finding.source.file, TEXT),
            "code.line.number": finding.source.line,
            "code.function.name": units.clean(finding.source.function, 120),
        }
    if finding.fix:
        told["ingero.finding.fix"] = units.clean(finding.fix[0].text, TEXT)
    return told
