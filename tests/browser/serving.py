"""`ingero dashboard` started as users start it, and recordings for it to show."""

from __future__ import annotations

import http.client
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.scenarios import demo
from ingero.scenarios.catalogue import BY_NAME
from ingero.serve.cli.surfaces import QuietSurface
from tests import servers
from tests.servers import TOKEN


def record(scenario: str, db: Path) -> Path:
    """A made-up job, through the real pipeline."""
    assert demo.run(demo.Played(BY_NAME[scenario], db, 7, 1e6), QuietSurface(), LiveDiagnosis) == 0
    return db


def rename_node(db: Path, name: str) -> None:
    connection = sqlite3.connect(db)
    connection.execute("UPDATE node SET name = ?", (name,))
    connection.commit()
    connection.close()


def two_nodes(folder: Path, first: Path) -> Path:
    """A recording merged with that of another machine."""
    second = record("gpu-steal", folder / "second.db")
    rename_node(second, "demo-2")
    return merged(folder / "both.db", first, second)


def merged(db: Path, *recordings: Path) -> Path:
    words = [sys.executable, "-m", "ingero", "merge", *map(str, recordings), "-o", str(db)]
    subprocess.run(words, check=True, capture_output=True)
    return db


GPU_TABLES = """
    CREATE TABLE gpu (node_id INTEGER, gpu_id INTEGER, name TEXT, driver TEXT, memory_bytes INTEGER,
        power_limit_default_mw INTEGER, first_ns INTEGER, last_ns INTEGER);
    CREATE TABLE gpu_sample (node_id INTEGER, at_ns INTEGER, gpu_id INTEGER, gpu_share REAL,
        memory_used_bytes INTEGER, sm_clock_mhz INTEGER, power_mw INTEGER, temperature_c INTEGER,
        reasons INTEGER, lost INTEGER);
    CREATE TABLE gpu_process (node_id INTEGER, at_ns INTEGER, gpu_id INTEGER, pid INTEGER, comm_id INTEGER,
        memory_bytes INTEGER, sm_share REAL, graphics INTEGER);
    CREATE VIEW gpus AS SELECT n.name AS node, g.* FROM gpu g JOIN node n ON n.id = g.node_id;
    CREATE VIEW gpu_samples AS SELECT n.name AS node, t.at_ns AS timestamp_ns, t.*,
        CASE WHEN t.reasons & 4 THEN 'sw_power_cap' END AS reason_names
        FROM gpu_sample t JOIN node n ON n.id = t.node_id;
    CREATE VIEW gpu_processes AS SELECT n.name AS node, t.at_ns AS timestamp_ns, s.text AS comm, t.*
        FROM gpu_process t JOIN node n ON n.id = t.node_id LEFT JOIN string s ON s.id = t.comm_id;"""


def with_a_gpu(db: Path) -> Path:
    """The same recording with a card's counters, second by second; half of them at the power limit."""
    connection = sqlite3.connect(db)
    node, begin, end = connection.execute("SELECT node_id, started_ns, last_ns FROM recording").fetchone()
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'gpu'").fetchone():
        connection.executescript(GPU_TABLES)
    connection.execute(
        "INSERT INTO gpu (node_id, gpu_id, name, driver, memory_bytes, power_limit_default_mw, first_ns,"
        " last_ns) VALUES (?, 0, 'Example H200', '580.1', ?, 700000, ?, ?)", (node, 141 << 30, begin, end),
    )  # fmt: skip
    for number, at in enumerate(range(begin, end, 1_000_000_000)):
        busy = 0.2 if 8 <= number < 16 else 0.95
        connection.execute(
            "INSERT INTO gpu_sample (node_id, at_ns, gpu_id, gpu_share, memory_used_bytes, sm_clock_mhz,"
            " power_mw, temperature_c, reasons, lost) VALUES (?, ?, 0, ?, ?, 1980, ?, ?, ?, 0)",
            (node, at, busy, 60 << 30, int(700_000 * busy), 40 + int(30 * busy), 4 if number % 2 else 0),
        )
        connection.execute(
            "INSERT INTO gpu_process (node_id, at_ns, gpu_id, pid, comm_id, memory_bytes, sm_share, graphics,"
            " process_id) SELECT ?, ?, 0, 4821, MIN(id), ?, ?, 0,"
            " (SELECT id FROM process WHERE pid = 4821) FROM string WHERE text = 'python3'",
            (node, at, 58 << 30, busy),
        )
    connection.commit()
    connection.close()
    return db


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Running(servers.Running):
    """A dashboard."""

    def url(self, path: str = "/", host: str = "localhost") -> str:
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{path}"

    def ask(
        self,
        path: str,
        token: str | None = TOKEN,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        client: Path | None = None,
    ) -> Answer:
        """One request, without a browser."""
        connection = (
            http.client.HTTPSConnection("localhost", self.port, timeout=60, context=self.tls(client))
            if self.secure
            else http.client.HTTPConnection("localhost", self.port, timeout=60)
        )
        sent = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            said = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, said, response.read())
        finally:
            connection.close()


@contextmanager
def running(
    db: Path,
    home: Path,
    *flags: str,
    token: str | None = TOKEN,
    before: str = "",
    on_terminal: bool = False,
) -> Iterator[Running]:
    """`ingero dashboard`; `before` is Python run ahead of it in the same process."""
    arguments = ["dashboard", "-d", str(db), *(flags or ("--addr", ":0"))]
    environ = {"INGERO_TOKEN": token} if token else {}
    with servers.started(Running, arguments, home, environ, before, on_terminal) as server:
        yield server
