"""An OTLP receiver that others wrote takes what we send, and gives it the names our dashboard asks for."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingero.model.metrics import ALL, Kind
from ingero.serve.metrics.otlp import OtlpExporter, SendingPace
from ingero.serve.metrics.otlp_destination import parse
from tests.conftest import require
from tests.monitoring.conftest import free_port
from tests.monitoring.waiting import until
from tests.unit.serve.answers.test_metrics import whole

PROGRAM = "victoria-metrics"


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[str]:
    """Debian has one that knows OTLP since version 13."""
    program = shutil.which(PROGRAM)
    require(PROGRAM, [] if program else [f"no {PROGRAM}"])
    port = free_port()
    words = [
        str(program), f"-storageDataPath={tmp_path / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
        "-opentelemetry.usePrometheusNaming", "-search.latencyOffset=0s", "-retentionPeriod=100y",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        if process.poll() is None:
            url = f"http://127.0.0.1:{port}"
            until(lambda: process.poll() is not None or answers(url), "the receiver is there")
        if process.poll() is not None:
            require(PROGRAM, ["this version does not know OTLP"])
        yield url
    finally:
        process.terminate()
        process.wait(30)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/health").close()
    except OSError:
        return False
    return True


def asked(url: str, path: str, **words: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(words)}") as answer:
        return json.load(answer)["data"]


def test_every_metric_is_stored_under_the_name_of_its_series(receiver: str) -> None:
    meter = whole()
    exporter = OtlpExporter(parse(f"{receiver}/opentelemetry", "--otlp"), SendingPace(interval_s=0.2), {})
    exporter.start(meter.snapshot)
    until(lambda: exporter.exports["metrics", "accepted"], "a round")
    exporter.stop(None)
    # The made-up values are years old.
    whole_time = {"start": "1600000000", "end": str(int(time.time()))}
    wanted = {row.series for row in ALL if row.name.removeprefix("ingero.") in meter.snapshot().points}
    histograms = {row.series for row in ALL if row.kind is Kind.HISTOGRAM}
    wanted = (wanted - histograms) | {f"{name}_count" for name in histograms}
    stored = until(
        lambda: wanted <= set(asked(receiver, "label/__name__/values", **whole_time)) or None, "names"
    )
    assert stored
    at = str(meter.snapshot().at_ns // 10**9 + 60)
    query = "sum(last_over_time(ingero_operation_duration_seconds_count[1h]))"
    made = len(meter.snapshot().points["operation.duration"])  # a call each

    def counted() -> bool:
        found = asked(receiver, "query", query=query, time=at)["result"]
        return bool(found) and float(found[0]["value"][1]) == made

    until(counted, "every call is in a histogram")
