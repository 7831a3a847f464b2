"""export --format otlp: totals are those of the recording, findings those of explain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.serve.cli.main import main
from ingero.store.reader import Reader


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "demo.db"
    assert main(["demo", "--no-gpu", "--no-tui", "--speed", "10000", "-d", str(path), "incident"]) == 0
    return path


@pytest.fixture(scope="module")
def lines(recording: Path) -> list[dict[str, Any]]:
    out = recording.with_name("recording.jsonl")
    assert main(["export", "--format", "otlp", "-d", str(recording), "-o", str(out)]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def points(request: ExportMetricsServiceRequest, name: str) -> list[Any]:
    found = []
    for part in request.resource_metrics:
        for metric in part.scope_metrics[0].metrics:
            if metric.name == name:
                found += list(getattr(metric, metric.WhichOneof("data")).data_points)
    return found


def test_totals_are_those_of_the_recording(recording: Path, lines: list[dict[str, Any]]) -> None:
    request = ParseDict(lines[0], ExportMetricsServiceRequest())
    with Reader(recording) as reader:
        ((calls, timed),) = reader.rows("SELECT SUM(count), SUM(sum_ns) FROM operations")
        ((fed,),) = reader.rows(
            "SELECT SUM(t.ns) FROM thread_time t JOIN"
            " (SELECT DISTINCT pid, tid FROM thread_second WHERE feeder) f ON f.pid = t.pid AND f.tid = t.tid"
        )
    assert sum(point.as_int for point in points(request, "ingero.operation.calls")) == calls
    durations = points(request, "ingero.operation.duration")
    assert sum(point.sum for point in durations) == pytest.approx(timed / 1e9)
    assert all(sum(p.positive.bucket_counts) + p.zero_count == p.count for p in durations)
    told = sum(point.as_double for point in points(request, "ingero.thread.time"))
    assert told == pytest.approx(fed / 1e9)


def test_findings_are_those_of_explain_as_spans_and_records(
    recording: Path, lines: list[dict[str, Any]]
) -> None:
    findings = get_report(recording, Range()).findings
    spans = lines[1]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    roots = [span for span in spans if "parentSpanId" not in span]
    assert [int(span["startTimeUnixNano"]) for span in roots] == [each.first_ns for each in findings]
    assert [int(span["endTimeUnixNano"]) for span in roots] == [each.last_ns for each in findings]
    records = lines[2]["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert len(records) == 2 * len(findings)
    assert {len(span["traceId"]) for span in spans} == {32}
    assert {len(span["spanId"]) for span in spans} == {16}
    assert {record["traceId"] for record in records} == {span["traceId"] for span in spans}


def test_one_process_alone_and_a_folder_refused(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.jsonl"
    words = ["export", "--format", "otlp", "-d", str(recording)]
    assert main([*words, "--pid", "4821", "-o", str(out)]) == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert main([*words, "-o", f"{tmp_path}/"]) == 2
