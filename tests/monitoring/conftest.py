"""A real Prometheus, from the Debian package, that scrapes what it is told to."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import require
from tests.contracts.tree import ROOT
from tests.monitoring.waiting import until

RULES = ROOT / "deploy/prometheus/ingero.rules.yml"
Started = Callable[[dict[str, Any]], "Prometheus"]


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, **asked: str) -> Any:
        words = urllib.parse.urlencode(asked)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}?{words}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{asked}: {error.read().decode()}") from error
        except OSError:
            return None  # not there yet

    def query(self, expression: str) -> list[Any]:
        found = self.get("query", query=expression)
        result: list[Any] = found["result"] if found else []
        return result

    def health(self) -> str:
        """Of its only target."""
        found = self.get("targets")
        targets = found["activeTargets"] if found else []
        return f"{targets[0]['health']} {targets[0]['lastError']}".strip() if targets else "none"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool")
    require("monitoring", [] if found else ["no promtool: Debian package prometheus"])
    return str(found)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Started]:
    """Starts one with a scrape configuration."""
    program = shutil.which("prometheus")
    require("monitoring", [] if program else ["no prometheus: Debian package prometheus"])
    running: list[subprocess.Popen[bytes]] = []

    def start(scrape: dict[str, Any]) -> Prometheus:
        job = {"job_name": "ingero", "honor_labels": True, **scrape}
        known = {
            "global": {"scrape_interval": "250ms", "evaluation_interval": "250ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [job],
        }
        file, port = tmp_path / "prometheus.yml", free_port()
        file.write_text(yaml.safe_dump(known))
        words = [
            str(program), f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with (tmp_path / "prometheus.log").open("wb") as log:
            running.append(subprocess.Popen(words, stdout=log, stderr=log))
        made = Prometheus(port)
        until(lambda: made.get("status/buildinfo"), (tmp_path / "prometheus.log").read_text() or "ready")
        return made

    yield start
    for process in running:
        process.terminate()
        process.wait(30)
