"""A round as OTLP and back: what a node tells is what the collector reads; what others write is bounded."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from msgspec.structs import replace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ingero.fleet.collector import otlp as received
from ingero.fleet.collector.otlp import UNPACKED_BYTES, Malformed, Received, unpacked
from ingero.fleet.push import otlp
from ingero.model.fleet import FINDINGS, JOBS
from ingero.units import DAY
from tests.unit.fleet.rounds import NOW_NS, finding, gpu, health, job


def read(signal: str, body: bytes, is_json: bool) -> Received:
    return received.read(signal, body, is_json, NOW_NS)


def as_json(body: bytes) -> bytes:
    request = ExportMetricsServiceRequest.FromString(body)
    return json.dumps(MessageToDict(request, use_integers_for_enums=True)).encode()


def test_a_round_arrives_as_it_was_told() -> None:
    told = health(jobs=[job(1), job(2, rank=None, steps_per_s=None)], gpus=[gpu(0), gpu(1, busy_share=None)])
    assert read("metrics", otlp.metrics(told), False).batches == [told]


def test_it_may_be_json() -> None:
    told = health()
    assert read("metrics", as_json(otlp.metrics(told)), True).batches == [told]


def test_findings_arrive_as_log_records() -> None:
    told = health(findings=[finding(), finding(id="x", ended=True, pid=None, lost_share=None)])
    body = otlp.logs(told)
    assert body is not None
    (found,) = read("logs", body, False).batches
    assert found.findings == told.findings
    assert (found.node, found.run, found.number) == (told.node, told.run, told.number)
    assert otlp.logs(health()) is None


def test_a_collector_in_between_may_put_many_nodes_into_one_request() -> None:
    told = [health("n1"), health("n2", 7)]
    request = ExportMetricsServiceRequest()
    for each in told:
        request.MergeFrom(ExportMetricsServiceRequest.FromString(otlp.metrics(each)))
    assert read("metrics", request.SerializeToString(), False).batches == told


def test_what_is_not_ours_is_counted_and_left_aside() -> None:
    request = ExportMetricsServiceRequest.FromString(otlp.metrics(health()))
    request.resource_metrics.add().scope_metrics.add().scope.name = "some.other.program"
    found = read("metrics", request.SerializeToString(), False)
    assert len(found.batches) == 1
    assert found.foreign == 1


@pytest.mark.parametrize(
    "more", [{"node": "a b"}, {"node": "../etc"}, {"node": ""}, {"run": "short"}, {"run": "Z" * 16}]
)
def test_a_batch_without_a_proper_name_is_none(more: dict[str, Any]) -> None:
    assert read("metrics", otlp.metrics(replace(health(), **more)), False).batches == []


def test_numbers_that_are_none_are_unknown() -> None:
    told = health(cores_share=float("nan"), overhead_share=float("inf"))
    (found,) = read("metrics", otlp.metrics(told), False).batches
    assert found.cores_share is None
    assert found.overhead_share is None


def test_texts_of_others_are_harmless_and_bounded() -> None:
    told = health(jobs=[job(name="py\x1b[31m" + "x" * 10_000)])
    (found,) = read("metrics", otlp.metrics(told), False).batches
    assert "\x1b" not in found.jobs[0].name
    assert len(found.jobs[0].name) < 200


def test_a_node_with_jobs_without_end_is_cut() -> None:
    (found,) = read("metrics", otlp.metrics(health(jobs=[job(pid) for pid in range(500)])), False).batches
    assert len(found.jobs) == JOBS
    body = otlp.logs(health(findings=[finding(id=str(each)) for each in range(500)]))
    assert body is not None
    assert len(read("logs", body, False).batches[0].findings) == FINDINGS


def test_a_finding_of_an_unknown_severity_is_left_out() -> None:
    body = otlp.logs(health(findings=[finding(severity="DOOM"), finding()]))
    assert body is not None
    assert [each.severity for each in read("logs", body, False).batches[0].findings] == ["HIGH"]


@pytest.mark.parametrize(
    "more",
    [
        {"gpus": [gpu(1 << 16)]}, {"gpus": [gpu(memory_bytes=-1)]}, {"targets": 1 << 32}, {"targets": -1},
        {"lost_events": -1}, {"dropped_rounds": -1}, {"jobs": [job(1 << 31)]}, {"at_ns": NOW_NS - 32 * DAY},
        {"at_ns": NOW_NS + 2 * DAY}, {"at_ns": 0},
    ],
    ids=str,
)  # fmt: skip
def test_a_round_that_no_table_can_keep_is_refused_and_others_beside_it_are_taken(
    more: dict[str, Any],
) -> None:
    bad = otlp.metrics(replace(health("bad"), **more))
    with pytest.raises(Malformed, match="bad: "):
        read("metrics", bad, False)
    found = read("metrics", bad + otlp.metrics(health("good")), False)
    assert [each.node for each in found.batches] == ["good"]
    assert len(found.refused) == 1


@pytest.mark.parametrize(
    "more", [{"pid": 1 << 32}, {"pid": -1}, {"confidence": float("nan")}, {"lost_share": float("inf")}]
)
def test_a_finding_that_no_table_can_keep_is_refused(more: dict[str, Any]) -> None:
    body = otlp.logs(health(findings=[finding(**more)]))
    assert body is not None
    with pytest.raises(Malformed):
        read("logs", body, False)


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"{", b"\n\x7f"])
@pytest.mark.parametrize("is_json", [False, True])
def test_garbage_is_malformed(body: bytes, is_json: bool) -> None:
    with pytest.raises(Malformed):
        read("metrics", body, is_json)


def test_a_request_of_empty_parts_without_end_is_refused() -> None:
    few, many = ExportMetricsServiceRequest(), ExportMetricsServiceRequest()
    for request, count in ((few, received.BATCHES), (many, received.BATCHES + 1)):
        part = request.resource_metrics.add()
        for _ in range(count):
            part.scope_metrics.add()
    assert read("metrics", few.SerializeToString(), False).foreign == received.BATCHES
    with pytest.raises(Malformed, match="send fewer"):
        read("metrics", many.SerializeToString(), False)


def test_a_bomb_is_not_unpacked() -> None:
    assert unpacked(gzip.compress(b"x" * 1000), "gzip") == b"x" * 1000
    with pytest.raises(Malformed, match="too large"):
        unpacked(gzip.compress(b"\0" * (UNPACKED_BYTES + 1)), "gzip")
    with pytest.raises(Malformed):
        unpacked(b"not gzip", "gzip")
    with pytest.raises(Malformed):
        unpacked(gzip.compress(b"x" * 1000)[:-12], "gzip")
    with pytest.raises(Malformed):
        unpacked(b"", "br")
