"""A real Prometheus scrapes us and answers what the dashboard and the alerts ask."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingero.model.metrics import ALL, SeriesPoint, Snapshot
from ingero.serve.metrics.exposition import text
from ingero.serve.metrics.prometheus import PrometheusExporter
from ingero.serve.web.opening import Opened, Wanted, open_server
from ingero.serve.web.private_files import Folder
from ingero.serve.web.server import Address
from tests.contracts.tree import ROOT
from tests.monitoring.conftest import RULES, Prometheus, Started, free_port
from tests.monitoring.waiting import until
from tests.unit.serve.answers.test_metrics import whole

TOKEN = "an-example-token-of-the-tests-0123456789"
CASES = Path(__file__).parent / "alert_cases.yml"
DASHBOARD = ROOT / "deploy/grafana/ingero.json"
OWN = {
    "otlp.exports": [SeriesPoint(("logs", "accepted"), 3, 0)],
    "otlp.lost": [SeriesPoint(("logs",), 1, 0)],
    "otlp.waiting": [SeriesPoint(("logs",), 2, 0)],
}


def everything() -> Snapshot:
    """A series of every row."""
    return whole().snapshot().also(OWN)


def panel_queries() -> list[tuple[str, str]]:
    board = json.loads(DASHBOARD.read_text())
    return [
        (panel["title"], re.sub(r"\$(instance|namespace|process)", ".*", target["expr"]))
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Opened]:
    """Every metric there is, served over TLS to whoever has the token."""
    wanted = Wanted(Address("127.0.0.1", 0))
    folder = Folder(tmp_path / "server")
    opened = open_server(wanted, folder, {"INGERO_TOKEN": TOKEN}, ("INGERO_TOKEN",))
    exporter = PrometheusExporter(opened)
    exporter.start(everything)
    yield opened
    exporter.stop(None)


def scrape(port: int, tmp_path: Path, token: str | None = TOKEN) -> dict[str, Any]:
    """As docs/metrics.md says."""
    file = tmp_path / "token"
    file.write_text(token or "")
    return {
        "scheme": "https",
        "tls_config": {"ca_file": str(tmp_path / "server/certificate.pem")},
        **({"authorization": {"credentials_file": str(file)}} if token else {}),
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
    }


def port_of(opened: Opened) -> int:
    return int(opened.url.rpartition(":")[2])


def test_every_panel_and_every_alert_is_answered(served: Opened, prometheus: Started, tmp_path: Path) -> None:
    server = prometheus(scrape(port_of(served), tmp_path))
    until(lambda: server.health() == "up", "a scrape")
    until(lambda: server.query("count_over_time(ingero_events_total[1m]) > 3"), "a few scrapes")
    for title, query in panel_queries():  # a scrape that was late leaves a gap for a moment
        until(partial(server.query, query.replace("$__rate_interval", "1m")), f"{title}: {query}")
    known = {row.series for row in ALL}
    assert not [name for name in known if not server.query(f'count({{__name__=~"{name}(_count)?"}})')]
    (group,) = until(lambda: rules_that_ran(server), "every rule ran")
    assert len(group) == len(yaml.safe_load(RULES.read_text())["groups"][0]["rules"])
    assert {rule["health"] for rule in group} == {"ok"}
    pending = {rule["name"] for rule in group if rule["state"] != "inactive"}
    # The made-up values: a process that loses 40 %, and an agent that last read just now.
    assert "IngeroJobLosesTime" in pending
    assert not {"IngeroStands", "IngeroNotRecording", "IngeroCriticalFinding"} & pending


def rules_that_ran(server: Prometheus) -> list[Any]:
    found = server.get("rules")
    rules = [group["rules"] for group in found["groups"]] if found else []
    return rules if rules and all(rule["health"] != "unknown" for rule in rules[0]) else []


@pytest.mark.parametrize("token", [None, "a-wrong-token-of-the-tests-0123456789"])
def test_without_the_token_prometheus_gets_nothing(
    served: Opened, prometheus: Started, tmp_path: Path, token: str | None
) -> None:
    server = prometheus(scrape(port_of(served), tmp_path, token))
    until(lambda: server.health().startswith("down"), "a refusal")
    assert "401" in server.health()
    assert not server.query("ingero_events_total")


def test_the_exposition_passes_promtool(promtool: str) -> None:
    body, _ = text(everything(), "")
    made = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr.decode()
    assert not made.stderr.strip()


def test_the_rules_pass_promtool(promtool: str) -> None:
    made = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr


def test_every_alert_fires_on_what_it_is_for_and_on_nothing_else(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(CASES.read_text().replace("RULES", str(RULES)))
    made = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "alerts.yml")], capture_output=True, check=False
    )
    assert made.returncode == 0, made.stdout.decode() + made.stderr.decode()
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    tested = set(re.findall(r"alertname: (\w+)", CASES.read_text()))
    assert tested == {rule["alert"] for rule in rules}


class Demo:
    """A demo that runs, and what it said so far."""

    def __init__(self, tmp_path: Path, *more: str) -> None:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("INGERO_", "OTEL_", "SUDO_", "XDG_"))
        }
        words = ["demo", "--no-gpu", "--no-tui", "incident", "-d", str(tmp_path / "demo.db"), *more]
        environ = kept | {"HOME": str(tmp_path), "INGERO_TOKEN": TOKEN}
        self._file = tmp_path / "said.txt"
        with self._file.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ingero", *words], cwd=tmp_path, env=environ, stdout=out, stderr=out
            )

    def said(self) -> str:
        return self._file.read_text()


def test_a_demo_is_scraped_while_it_runs(prometheus: Started, tmp_path: Path) -> None:
    port = free_port()
    demo = Demo(tmp_path, "--speed", "4", "--prometheus", f"127.0.0.1:{port}")
    try:
        until(lambda: "metrics: https://127.0.0.1" in demo.said(), "where the metrics are")
        known = scrape(port, tmp_path)
        known["tls_config"] = {"ca_file": str(tmp_path / ".ingero/server/certificate.pem")}
        server = prometheus(known)
        until(lambda: server.query('ingero_findings{kind="cpu-contention"}'), "the finding")
        (lost,) = server.query("ingero_finding_lost_time_ratio")
        assert lost["metric"]["pod"] == "nightly-retraining-0"
        assert lost["metric"]["namespace"] == "ml"
    finally:
        assert demo.process.wait(60) == 0
    (calls,) = server.query("sum(last_over_time(ingero_operation_calls_total[5m]))")
    with sqlite3.connect(tmp_path / "demo.db") as db:
        (recorded,) = db.execute("SELECT sum(count) FROM operations").fetchone()
    assert 0 < float(calls["value"][1]) <= recorded


@pytest.mark.parametrize("address", ["{port}", "1.2.3.4:x", "http://0.0.0.0:{port}", "x:y:9"])
def test_a_wrong_or_unsafe_address_is_refused(tmp_path: Path, address: str) -> None:
    demo = Demo(tmp_path, "--prometheus", address.format(port=free_port()))
    assert demo.process.wait(60) == 2
    assert "\nerror: " in f"\n{demo.said()}"
