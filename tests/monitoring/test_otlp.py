"""A real receiver gets metrics, spans and log records; one that goes away for a while misses no finding."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingero.model.live import DatabaseStatus, LiveView
from ingero.serve.answers.metrics import Meter
from ingero.serve.metrics.otlp import OtlpExporter, SendingPace
from ingero.serve.metrics.otlp_destination import parse
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, finding, fixed_clock, operation, window
from tests.monitoring.receiver import GrpcReceiver, HttpReceiver, Stored
from tests.monitoring.waiting import until

QUICK = SendingPace(interval_s=0.2, first_pause_s=0.05, longest_pause_s=0.2, flush_s=5)


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def receiver(stored: Stored) -> Iterator[HttpReceiver]:
    made = HttpReceiver(stored)
    yield made
    made.close()


def plain(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def view(*findings: Any) -> LiveView:
    return LiveView(EPOCH_NS, 0, database=DatabaseStatus("/x.db", 1), findings=tuple(findings))


class Trace:
    """An exporter with a meter behind it, a second at a time."""

    def __init__(self, address: str, pace: SendingPace = QUICK, protocol: str = "http") -> None:
        self.exporter = OtlpExporter(parse(address, "--otlp", protocol), pace, {})
        self.meter = Meter(OPERATIONS, fixed_clock(), "n1")
        self.exporter.start(self.meter.snapshot)
        self.seconds = 0
        self.last = view()

    def second(self, *findings: Any) -> None:
        self.meter.add(window(self.seconds * SECOND, operations=[operation()]))
        self.last = view(*findings)
        self.meter.observe(self.last)
        self.exporter.look(self.last)
        self.seconds += 1

    def end(self) -> None:
        self.exporter.stop(self.last)

    def own(self, name: str) -> dict[tuple[str, ...], float]:
        points = self.exporter.own()[name]
        return {point.labels: point.value for point in points}  # type: ignore[misc]


def titles(stored: Stored, event: str = "ingero.finding.began") -> list[str]:
    return [record.body.string_value for record in stored.records() if record.event_name == event]


def test_everything_arrives(stored: Stored, receiver: HttpReceiver) -> None:
    trace = Trace(f"127.0.0.1:{receiver.port}")
    trace.second(finding())
    until(lambda: stored.records() and stored.metrics(), "a record and metrics")
    trace.second()
    trace.end()
    assert titles(stored) == [finding().title]
    assert [span.name for span in stored.spans() if not span.parent_span_id] == ["finding cpu-contention"]
    calls = [metric for metric in stored.metrics() if metric.name == "ingero.operation.calls"]
    assert calls[-1].sum.data_points[0].as_int == 2
    assert not any(trace.own("otlp.lost").values())
    assert {headers["content-encoding"] for headers in stored.headers} == {"gzip"}


def test_a_receiver_that_goes_away_for_a_while_misses_no_finding_and_stalls_nothing(stored: Stored) -> None:
    receiver = HttpReceiver(stored)
    trace = Trace(f"127.0.0.1:{receiver.port}")
    trace.second(finding("first", pid=1))
    until(lambda: titles(stored) == ["first"], "the first finding")
    receiver.close()
    away = [finding(f"while away {number}", pid=100 + number) for number in range(300)]
    for each in away:
        trace.second(each)  # each ends the one before
    until(lambda: trace.own("otlp.exports").get(("logs", "failed"), 0) >= 3, "three tries")
    assert trace.own("otlp.waiting")[("logs",)] >= 600 - 2
    receiver = HttpReceiver(stored, receiver.port)
    until(lambda: not trace.own("otlp.waiting")[("logs",)], "nothing waits")
    trace.second(finding("last", pid=2))
    trace.end()
    receiver.close()
    assert set(titles(stored)) == {"first", "last", *(each.title for each in away)}
    roots = {span.status.message for span in stored.spans() if not span.parent_span_id}
    assert roots == {"first", "last", *(each.title for each in away)}
    assert not trace.own("otlp.lost")[("logs",)]
    assert not trace.own("otlp.lost")[("traces",)]


def test_the_trace_never_waits_for_a_receiver_that_does_not_answer(stored: Stored) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections, says nothing
        trace = Trace(f"127.0.0.1:{deaf.getsockname()[1]}", SendingPace(interval_s=0.05, flush_s=0.5))
        for number in range(200):  # would take for ever if one of them waited for an answer
            trace.second(finding(pid=number))
            assert len(trace.exporter._waiting["metrics"]) <= QUICK.rounds
        trace.end()
    assert trace.own("otlp.lost")[("logs",)] > 0  # said, not hidden
    assert not stored.records()


def test_what_does_not_fit_is_lost_oldest_first_and_counted(stored: Stored) -> None:
    receiver = HttpReceiver(stored)
    receiver.close()
    trace = Trace(
        f"127.0.0.1:{receiver.port}",
        SendingPace(interval_s=60, first_pause_s=0.05, longest_pause_s=0.1, findings=10, flush_s=5),
    )
    for number in range(30):
        trace.second(finding(f"finding {number}", pid=number))
    lost = trace.own("otlp.lost")[("logs",)]
    assert lost == 59 - 10  # thirty began, all but the last ended
    receiver = HttpReceiver(stored, receiver.port)
    until(lambda: not trace.own("otlp.waiting")[("logs",)], "nothing waits")
    trace.end()
    receiver.close()
    assert titles(stored)[-1] == "finding 29"
    assert "finding 0" not in titles(stored)


def test_a_receiver_that_is_busy_is_asked_again_and_one_that_refuses_is_not(
    stored: Stored, receiver: HttpReceiver
) -> None:
    receiver.refuse = [(503, {"retry-after": "0"}), (429, {}), (400, {})]
    trace = Trace(
        f"127.0.0.1:{receiver.port}", SendingPace(interval_s=60, first_pause_s=0.05, longest_pause_s=0.1)
    )
    trace.second(finding("refused"))
    until(lambda: trace.own("otlp.exports").get(("logs", "refused")), "the refusal")
    trace.second(finding("refused"), finding("taken", pid=7))
    until(lambda: titles(stored), "the next one")
    trace.end()
    assert titles(stored) == ["taken"]
    assert trace.own("otlp.exports")[("logs", "failed")] == 2
    assert trace.own("otlp.lost")[("logs",)] == 1


def test_the_same_over_grpc(stored: Stored) -> None:
    receiver = GrpcReceiver(stored)
    trace = Trace(f"127.0.0.1:{receiver.port}", protocol="grpc")
    trace.second(finding())
    until(lambda: stored.records() and stored.metrics(), "a record and metrics")
    trace.end()
    receiver.close()
    assert titles(stored) == [finding().title]
    assert stored.spans()
    assert not any(trace.own("otlp.lost").values())


def test_a_grpc_receiver_that_is_not_there_loses_nothing_before_the_end(stored: Stored) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    trace = Trace(f"127.0.0.1:{port}", SendingPace(interval_s=60, first_pause_s=0.05, flush_s=0.2), "grpc")
    trace.second(finding())
    until(lambda: trace.own("otlp.exports").get(("logs", "failed")), "a try")
    assert trace.own("otlp.waiting")[("logs",)] == 1
    trace.end()
    assert trace.own("otlp.lost")[("logs",)] == 2  # began and ended


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("INGERO_", "OTEL_", "SUDO_", "XDG_"))}
    return kept | {"HOME": str(home)} | more


def test_a_demo_sends_its_findings_and_counters(
    stored: Stored, receiver: HttpReceiver, tmp_path: Path
) -> None:
    words = ["demo", "--no-gpu", "--no-tui", "incident", "--speed", "20"]
    environ = environment(
        tmp_path,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{receiver.port}",
        OTEL_EXPORTER_OTLP_HEADERS="api-key=secret%20one",
        OTEL_RESOURCE_ATTRIBUTES="k8s.cluster.name=blue",
        INGERO_OTLP_INTERVAL="200ms",
    )
    made = subprocess.run(
        [sys.executable, "-m", "ingero", *words, "-d", str(tmp_path / "demo.db")],
        env=environ, capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "secret" not in made.stdout + made.stderr
    assert {headers["api-key"] for headers in stored.headers} == {"secret one"}
    kinds = {plain(record.attributes)["ingero.finding.kind"] for record in stored.records()}
    assert kinds == {"cpu-contention"}
    (root,) = {span.trace_id: span for span in stored.spans() if not span.parent_span_id}.values()
    told = plain(root.attributes)
    assert told["k8s.pod.name"] == "nightly-retraining-0"
    assert told["code.file.path"].endswith("train.py")
    abouts = [
        plain(part.resource.attributes)
        for request in stored.requests["metrics"]
        for part in request.resource_metrics
    ]
    assert {about["k8s.cluster.name"] for about in abouts} == {"blue"}
    assert 4821 in {about.get("process.pid") for about in abouts}
    names = {metric.name for metric in stored.metrics()}
    assert {"ingero.operation.duration", "ingero.thread.time", "ingero.findings"} <= names


def test_a_receiver_that_is_not_there_is_said_and_the_demo_ends_well(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = f"demo --no-gpu --no-tui incident --speed 100 --otlp 127.0.0.1:{port}".split()
    made = subprocess.run(
        [sys.executable, "-m", "ingero", *words, "-d", str(tmp_path / "demo.db")],
        env=environment(tmp_path), capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert made.returncode == 0
    assert "does not take data" in made.stderr
    assert "not sent:" in made.stderr
