"""OTLP requests read back into rounds of nodes; what is not ours is left aside and counted.

An OpenTelemetry Collector in between may put the batches of many nodes into one request, so a request
is a list of batches, each with its own name. Everything in it was written by somebody else:
texts are cleaned and cut, numbers held to what the tables can keep, times to a window around now, and a
node's name must be one. What breaks a bound would make the insert of everybody's batches fail.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ingero import units
from ingero.model.finding import Severity
from ingero.model.fleet import (
    BUCKET,
    CLUSTER,
    FINDING_WORDS,
    FINDINGS,
    GPU,
    GPU_INFO,
    GPU_SERIES,
    GPU_WORDS,
    GPUS,
    JOB_INFO,
    JOB_SERIES,
    JOB_TIME,
    JOB_WORDS,
    JOBS,
    NODE,
    NODE_SERIES,
    NUMBER,
    PID,
    RUN,
    FindingHealth,
    GpuHealth,
    Health,
    JobHealth,
)
from ingero.model.window import BUCKET_NAMES
from ingero.units import DAY

UNPACKED_BYTES = 16 << 20
BATCHES, POINTS = 1024, 500_000  # of one request: nodes gathered, and points or records in all
TEXT, WORD = 300, 120
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_RUN = re.compile(r"[0-9a-f]{16}")
_SERIES = {
    **{each.metric: ("node", each) for each in NODE_SERIES},
    **{each.metric: ("job", each) for each in JOB_SERIES},
    **{each.metric: ("gpu", each) for each in GPU_SERIES},
}
REQUESTS: dict[str, Any] = {"metrics": ExportMetricsServiceRequest, "logs": ExportLogsServiceRequest}
MOST_NS = 1 << 62
WHOLE = {"targets": 1 << 32}  # whole numbers stay below, others below 1 << 62: the types of tables.sql
# Batches wait on disks of nodes for days; every day is a part of an insert, which may have a hundred.
BEHIND_NS, AHEAD_NS = 31 * DAY, DAY


class Malformed(Exception):  # noqa: N818 - no error of ours
    """The request cannot be read; sending it again will not help."""


class Received(NamedTuple):
    """The batches of a request, how many parts of it were not ours, and what is wrong with those left out."""

    batches: list[Health]
    foreign: int = 0
    refused: tuple[str, ...] = ()


def unpacked(body: bytes, encoding: str) -> bytes:
    """The body as it was before it was packed; one that unpacks to gigabytes is refused."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Malformed(f"content-encoding {units.clean(encoding, 40)} is not known")
    packed = zlib.decompressobj(31)
    try:
        found = packed.decompress(body, UNPACKED_BYTES)
    except zlib.error as error:
        raise Malformed("the body is not gzip") from error
    if packed.unconsumed_tail or not packed.eof:
        raise Malformed("the body is too large once unpacked, or cut off")
    return found


def read(signal: str, body: bytes, is_json: bool, now_ns: int) -> Received:
    """`signal` is metrics or logs. Malformed where nothing in it can be kept; else what can be is."""
    try:
        request = REQUESTS[signal]()
        if is_json:
            json_format.Parse(body, request, ignore_unknown_fields=True, max_recursion_depth=20)
        else:
            request.ParseFromString(body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise Malformed(f"not an OTLP request: {units.clean(str(error), WORD)}") from error
    parts = request.resource_metrics if signal == "metrics" else request.resource_logs
    _require_few(signal, parts)
    found: list[Health] = []
    foreign = 0
    refused: list[str] = []
    for part in parts:
        about = _values(part.resource.attributes)
        for scope in part.scope_metrics if signal == "metrics" else part.scope_logs:
            named = _named(about, _values(scope.scope.attributes))
            if named is None or scope.scope.name != "ingero.fleet":
                foreign += 1
                continue
            try:
                made = (
                    _round(named, scope.metrics) if signal == "metrics" else _told(named, scope.log_records)
                )
                if made.at_ns or made.findings or signal == "metrics":
                    _within("its time", made.at_ns - now_ns, -BEHIND_NS, AHEAD_NS)
            except Malformed as error:
                refused.append(f"{named['node']}: {error}")
            else:
                found.append(made)
    if refused and not found:
        raise Malformed(refused[0])
    return Received(found, foreign, tuple(refused))


def _require_few(signal: str, parts: Iterable[Any]) -> None:
    """Little of a request is its own: 16 MB of empty parts would be millions."""
    scopes = points = 0
    for part in parts:
        for scope in part.scope_metrics if signal == "metrics" else part.scope_logs:
            scopes += 1
            points += sum(map(_size, scope.metrics)) if signal == "metrics" else len(scope.log_records)
            if scopes > BATCHES or points > POINTS:
                raise Malformed(f"more than {BATCHES} batches or {POINTS} points in one request: send fewer")


def _size(metric: Any) -> int:
    return 1 + len((metric.sum if metric.HasField("sum") else metric.gauge).data_points)


def _within(what: str, value: float, least: float, most: float) -> None:
    if not least <= value < most:
        raise Malformed(f"{what} is out of range")


def _named(about: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any] | None:
    node, run, number = about.get(NODE), scope.get(RUN), scope.get(NUMBER)
    if not isinstance(node, str) or not _NODE.fullmatch(node):
        return None
    if not isinstance(run, str) or not _RUN.fullmatch(run) or not isinstance(number, int):
        return None
    if not 0 <= number < MOST_NS:
        return None
    return {
        "node": node,
        "run": run,
        "number": number,
        "cluster": _word(about.get(CLUSTER)),
        "version": _word(about.get("service.version")),
    }


def _round(named: dict[str, Any], metrics: Iterable[Any]) -> Health:
    values: dict[str, Any] = {}
    jobs: dict[int, dict[str, Any]] = defaultdict(dict)
    gpus: dict[int, dict[str, Any]] = defaultdict(dict)
    at_ns = from_ns = 0
    for metric in metrics:
        points = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
        for point in points:
            at_ns = max(at_ns, min(point.time_unix_nano, MOST_NS))
            from_ns = max(from_ns, min(point.start_time_unix_nano, MOST_NS))
            words = _values(point.attributes)
            value = _number(point)
            if metric.name in _SERIES and value is not None:
                thing, series = _SERIES[metric.name]
                if series.whole:
                    _within(metric.name, value, 0, WHOLE.get(series.field, MOST_NS))
                checked = int(value) if series.whole else float(value)
                if thing == "node":
                    values[series.field] = checked
                elif (key := _key(words, PID if thing == "job" else GPU)) is not None:
                    (jobs if thing == "job" else gpus)[key][series.field] = checked
            elif metric.name == JOB_TIME and value is not None and words.get(BUCKET) in BUCKET_NAMES:
                if (key := _key(words, PID)) is not None:
                    jobs[key].setdefault("time_s", {})[words[BUCKET]] = float(value)
            elif metric.name == JOB_INFO and (key := _key(words, PID)) is not None:
                jobs[key] |= _job_words(words)
            elif metric.name == GPU_INFO and (key := _key(words, GPU)) is not None:
                gpus[key] |= {field: _word(words.get(name)) for field, name in GPU_WORDS.items()}
    if not at_ns:
        raise Malformed("a round without a time")
    return Health(
        **named,
        at_ns=at_ns,
        from_ns=from_ns or at_ns,
        **values,
        jobs=[JobHealth(pid, **each) for pid, each in list(jobs.items())[:JOBS]],
        gpus=[GpuHealth(gpu, **each) for gpu, each in list(gpus.items())[:GPUS]],
    )


def _job_words(words: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {field: _word(words.get(name)) for field, name in JOB_WORDS.items()}
    for field in ("rank", "world_size"):
        found[field] = _whole(words.get(JOB_WORDS[field]))
    return found


def _told(named: dict[str, Any], records: Iterable[Any]) -> Health:
    findings = [each for record in list(records)[:FINDINGS] if (each := _finding(record)) is not None]
    at_ns = max((min(record.observed_time_unix_nano, MOST_NS) for record in records), default=0)
    return Health(**named, at_ns=at_ns, from_ns=at_ns, findings=findings)


def _finding(record: Any) -> FindingHealth | None:
    words = _values(record.attributes)
    given = {field: words.get(name) for field, name in FINDING_WORDS.items()}
    given["cause"], given["fix"] = (units.clean(str(given[key] or ""), TEXT) for key in ("cause", "fix"))
    given["id"], given["kind"] = _word(given["id"]), _word(given["kind"])
    given["ended"], given["confidence"] = bool(given["ended"]), given["confidence"] or 0.0
    given["title"] = units.clean(record.body.string_value, TEXT)
    given["severity"] = record.severity_text
    if not given["id"] or record.severity_text not in list(Severity):
        return None
    for field in ("opened_ns", "first_ns", "last_ns"):
        instant = given[field]
        if not isinstance(instant, int) or not 0 < instant < MOST_NS:
            return None
    try:
        found = msgspec.convert(given, FindingHealth)
    except msgspec.ValidationError:
        return None
    _within("a finding's process", found.pid or 0, 0, 1 << 32)
    for share in (found.confidence, found.lost_share or 0.0):
        _within("a finding's share", share, -MOST_NS, MOST_NS)  # none is a number that is none
    return found


def _values(attributes: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            found[each.key] = getattr(each.value, kind)
    return found


def _number(point: Any) -> float | None:
    kind = point.WhichOneof("value")
    value: float = point.as_int if kind == "as_int" else point.as_double
    return value if kind is not None and math.isfinite(value) and abs(value) < MOST_NS else None


def _key(words: Mapping[str, Any], name: str) -> int | None:
    value = words.get(name)
    if not isinstance(value, int):
        return None
    _within(name, value, 0, 1 << 16 if name == GPU else 1 << 31)
    return value


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else None


def _word(value: Any) -> str:
    return units.clean(value, WORD) if isinstance(value, str) else ""
