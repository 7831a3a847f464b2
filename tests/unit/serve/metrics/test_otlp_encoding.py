"""What is sent over OTLP: every series, every call, every finding, in the conventions' words."""

from __future__ import annotations

from typing import Any

import numpy as np
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingero.model.histogram import SLOTS, lower_bounds
from ingero.model.metrics import BY_NAME, LABELS, Kind, Snapshot
from ingero.serve.answers.finding_news import News, What
from ingero.serve.metrics.otlp_findings import encode_logs, encode_spans
from ingero.serve.metrics.otlp_metrics import SCALE, ZERO_S, encode, exponential, host_resource
from tests.builders import EPOCH_NS, SECOND, finding
from tests.unit.serve.answers.test_metrics import whole

HOST = host_resource("n1", {})
LABELS_OF = {100: ("100", "python", "c0ffee", "job-0", "ml")}


def plain(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def sent(snapshot: Snapshot) -> ExportMetricsServiceRequest:
    return ExportMetricsServiceRequest.FromString(encode(snapshot, HOST))


def test_every_series_is_sent_with_its_labels_as_attributes() -> None:
    snapshot = whole().snapshot()
    found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for part in sent(snapshot).resource_metrics:
        about = plain(part.resource.attributes)
        assert about["service.name"] == "ingero"
        assert about["host.name"] == "n1"
        for metric in part.scope_metrics[0].metrics:
            data = getattr(metric, metric.WhichOneof("data"))
            for point in data.data_points:
                told = {key: str(value) for key, value in (about | plain(point.attributes)).items()}
                found.setdefault(metric.name, set()).add(tuple(sorted(told.items())))
    for name, points in snapshot.points.items():
        row = BY_NAME[name]
        assert len(found[row.name]) == len(points), name
        for point in points:
            wanted = {
                (LABELS[label][0], value)
                for label, value in zip(row.labels, point.labels, strict=True)
                if value
            }
            assert any(wanted <= set(told) for told in found[row.name]), (name, wanted)


def test_counters_are_cumulative_and_say_since_when() -> None:
    for part in sent(whole().snapshot()).resource_metrics:
        for metric in part.scope_metrics[0].metrics:
            row = BY_NAME[metric.name.removeprefix("ingero.")]
            assert metric.unit == row.unit
            kind = {Kind.COUNTER: "sum", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "exponential_histogram"}[
                row.kind
            ]
            assert metric.WhichOneof("data") == kind
            if kind != "gauge":
                data = getattr(metric, kind)
                assert data.aggregation_temporality == 2
                assert all(0 < p.start_time_unix_nano <= p.time_unix_nano for p in data.data_points)


def test_a_process_is_a_resource_of_its_own_and_instances_differ() -> None:
    parts = sent(whole().snapshot()).resource_metrics
    about = [plain(part.resource.attributes) for part in parts]
    assert len({each["service.instance.id"] for each in about}) == len(about)
    assert [each for each in about if each.get("process.pid") == 100]


def test_every_slot_becomes_the_bucket_its_middle_lies_in() -> None:
    bounds = lower_bounds() / 1e9
    base = 2 ** (2**-SCALE)
    for slot in range(1, SLOTS):
        slots = np.zeros(SLOTS, np.uint64)
        slots[slot] = 7
        offset, counts = exponential(slots)
        assert counts == [7]
        middle = (bounds[slot] + bounds[slot + 1]) / 2
        assert base**offset < middle * (1 + 1e-12)
        assert middle <= base ** (offset + 1) * (1 + 1e-12)


def test_no_call_is_lost_on_the_way_to_an_exponential_histogram() -> None:
    slots = np.random.default_rng(1).integers(0, 1000, SLOTS).astype(np.uint64)
    _, counts = exponential(slots)
    assert sum(counts) + int(slots[0]) == int(slots.sum())
    assert exponential(np.zeros(SLOTS, np.uint64)) == (0, [])
    assert ZERO_S == 64e-9


def test_a_finding_is_a_log_record_with_its_source_line_and_whose_it_is() -> None:
    body = encode_logs([News(What.BEGAN, finding(), EPOCH_NS)], HOST, LABELS_OF)
    (part,) = ExportLogsServiceRequest.FromString(body).resource_logs
    (record,) = part.scope_logs[0].log_records
    told = plain(record.attributes)
    assert (record.severity_text, record.event_name) == ("HIGH", "ingero.finding.began")
    assert record.body.string_value == finding().title
    assert told["ingero.finding.kind"] == "cpu-contention"
    assert (told["k8s.pod.name"], told["process.pid"]) == ("job-0", 100)
    assert (told["code.file.path"], told["code.line.number"]) == ("/home/a/train.py", 142)


def test_a_finding_that_ended_is_a_span_with_an_episode_below() -> None:
    news = [News(What.BEGAN, finding(), EPOCH_NS), News(What.ENDED, finding(), EPOCH_NS)]
    (part,) = ExportTraceServiceRequest.FromString(encode_spans(news, HOST, {})).resource_spans
    root, *episodes = part.scope_spans[0].spans
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (EPOCH_NS, EPOCH_NS + 8 * SECOND)
    assert [event.name for event in root.events] == ["cause", "cause"]
    assert plain(root.events[0].attributes)["ingero.cause.pid"] == 200
    assert len(episodes) == len(finding().episodes)
    assert {each.parent_span_id for each in episodes} == {root.span_id}
    assert {each.trace_id for each in episodes} == {root.trace_id}
    logs = ExportLogsServiceRequest.FromString(encode_logs(news, HOST, {}))
    assert {r.trace_id for r in logs.resource_logs[0].scope_logs[0].log_records} == {root.trace_id}


def test_what_is_sent_twice_has_the_same_ids_and_another_finding_others() -> None:
    def span_ids(*news: News) -> list[bytes]:
        (part,) = ExportTraceServiceRequest.FromString(encode_spans(news, HOST, {})).resource_spans
        return [span.span_id for span in part.scope_spans[0].spans]

    again = News(What.ENDED, finding(), EPOCH_NS)
    assert span_ids(again) == span_ids(again)
    assert not set(span_ids(again)) & set(span_ids(News(What.ENDED, finding(), EPOCH_NS + 1)))


def test_a_hostile_title_is_plain_text() -> None:
    news = News(What.BEGAN, finding(title="\x1b[31m" + "x" * 10_000 + "\ud800"), EPOCH_NS)
    (part,) = ExportLogsServiceRequest.FromString(encode_logs([news], HOST, {})).resource_logs
    text = part.scope_logs[0].log_records[0].body.string_value
    assert text.isprintable()
    assert len(text) <= 500


def test_the_resource_can_be_named_by_the_usual_variables() -> None:
    told = host_resource(
        "n1", {"OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=a%20b,broken", "OTEL_SERVICE_NAME": "mine"}
    )
    assert (told["k8s.cluster.name"], told["service.name"]) == ("a b", "mine")
