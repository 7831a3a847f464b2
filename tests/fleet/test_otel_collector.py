"""A standard OpenTelemetry Collector between nodes and ours: reports arrive once, many in one request.

`make otelcol` builds the program; test_passed_on.py tries the same with a small one of our own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from ingero.fleet.collector.credentials import token_for
from ingero.serve.metrics.fleet import FleetSender
from ingero.serve.metrics.otlp_destination import parse
from tests.browser.serving import record, rename_node
from tests.conftest import require
from tests.contracts.tree import ROOT
from tests.ebpf.real_runs import until
from tests.fleet.serving import Collector, collector, nodes, stored
from tests.fleet.test_nothing_is_lost import QUICK
from tests.fleet.test_store import fresh
from tests.monitoring.conftest import free_port
from tests.servers import environment
from tests.unit.fleet.rounds import finding

PROGRAM = ROOT / "build/tools/otelcol"
SECRET = "a-secret-of-the-tests-that-is-long-enough"
NODES, ROUNDS = 6, 5

pytestmark = pytest.mark.long


@contextmanager
def between(home: Path, to_port: int, encoding: str) -> Iterator[tuple[int, Path]]:
    """Its port and its log; what it has waiting is handed on before it ends."""
    port, log = free_port(), home / "otelcol.log"
    exporter = {
        "endpoint": f"http://127.0.0.1:{to_port}",
        "encoding": encoding,
        "headers": {"authorization": f"Bearer {token_for(SECRET.encode(), '*')}"},
    }
    each = {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["otlphttp"]}
    configuration = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "processors": {"batch": {"timeout": "1s", "send_batch_size": 100_000}},
        "exporters": {"otlphttp": exporter},
        "service": {
            "pipelines": {"metrics": each, "logs": each},
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    file = home / "otelcol.yaml"
    file.write_text(yaml.safe_dump(configuration))
    with log.open("wb") as said:
        running = subprocess.Popen([PROGRAM, "--config", file], stdout=said, stderr=said)
        try:
            until(lambda: "Everything is ready" in log.read_text(), "it listens", 60)
            yield port, log
        finally:
            running.terminate()
            running.wait(60)


def seen(running: Collector, names: set[str]) -> bool:
    """All of them were looked at, and what was found on two of them."""
    found = {each["node"]: each for each in nodes(running, token="")}
    return set(found) == names and all(found[name]["findings"] for name in ("n1", "real"))


@pytest.mark.parametrize("encoding", ["proto", "json"])
def test_reports_of_several_nodes_arrive_once_each_through_an_opentelemetry_collector(
    home: Path, encoding: str
) -> None:
    require("otelcol", [] if PROGRAM.exists() else ["no OpenTelemetry Collector: `make otelcol` builds it"])
    (home / "secret").touch(mode=0o600)
    (home / "secret").write_text(SECRET)
    db = record("incident", home / "real.db")
    rename_node(db, "real")
    words = ("--no-tls", "--node-secret", str(home / "secret"))
    with collector(home, *words, listen="127.0.0.1:0", INGERO_TOKEN="") as running:
        with between(home, running.port, encoding) as (port, log):
            told = told_by_many(home, port)
            pushed = subprocess.run(
                [sys.executable, "-m", "ingero", "fleet", "push", "--once", "-d", db,
                 "--fleet", f"http://127.0.0.1:{port}"],
                env=environment(home), capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert pushed.returncode == 0, pushed.stderr
        assert "error" not in log.read_text(), log.read_text()
        names = {f"n{at}" for at in range(NODES)} | {"real"}
        until(lambda: seen(running, names), "the collector had looked at all of them", 60)
        counts = running.get("/metrics", "")[1].decode()
    found = stored(home)
    assert told < set(found)
    assert {node for node, _, _ in set(found) - told} == {"real"}
    assert set(found.values()) == {1}
    assert 1 <= total(counts, "requests") < total(counts, "batches"), "none held more than one report"


def total(text: str, what: str) -> float:
    lines = [each for each in text.splitlines() if each.startswith(f"ingero_fleet_{what}_total")]
    return sum(float(each.rpartition(" ")[2]) for each in lines)


def told_by_many(home: Path, port: int) -> set[tuple[str, str, int]]:
    """Rounds of nodes, all of them taken by what stands between."""
    to = parse(f"http://127.0.0.1:{port}", "--fleet")
    senders = [FleetSender(to, home / f"spool{at}", "c1", QUICK) for at in range(NODES)]
    told = set()
    for at, each in enumerate(senders):
        each.outbox.start()
        for number in range(1, ROUNDS + 1):
            findings = [finding(cause="log-shipper has it")] if at == number == 1 else []
            each.put(fresh(f"n{at}", number, run=each.run, findings=findings))
            told.add((f"n{at}", each.run, number))
    for each in senders:
        each.close()
        assert not each.outbox.waiting
    return told
