"""OTLP as lines of JSON: ids in hexadecimal and enums as numbers, unlike protobuf's own JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingero.model.metrics import PROCESS, Snapshot
from ingero.serve.answers.finding_news import News
from ingero.serve.metrics.otlp_findings import encode_logs, encode_spans
from ingero.serve.metrics.otlp_metrics import encode, host_resource

IDS = {"traceId", "spanId", "parentSpanId"}


def lines(snapshot: Snapshot, news: list[News], environ: Mapping[str, str]) -> list[str]:
    """Metrics, then spans and log records where there are findings."""
    host = host_resource(snapshot.node, environ)
    labels = {
        int(point.labels[0]): point.labels[: len(PROCESS)]
        for point in snapshot.points.get("process.info", ())
    }
    found = [_line(ExportMetricsServiceRequest.FromString(encode(snapshot, host)))]
    if news:
        found.append(_line(ExportTraceServiceRequest.FromString(encode_spans(news, host, labels))))
        found.append(_line(ExportLogsServiceRequest.FromString(encode_logs(news, host, labels))))
    return found


def _line(message: Message) -> str:
    plain = MessageToDict(message, use_integers_for_enums=True)
    return json.dumps(_hexadecimal(plain), ensure_ascii=False, separators=(",", ":"))


def _hexadecimal(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: base64.b64decode(each).hex() if key in IDS else _hexadecimal(each)
            for key, each in value.items()
        }
    return [_hexadecimal(each) for each in value] if isinstance(value, list) else value
