"""`ingero fleet serve` as users start it, what nodes send it, and what its store holds afterwards."""

from __future__ import annotations

import gzip
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingero.fleet.collector.credentials import token_for
from ingero.fleet.push import otlp
from ingero.model.fleet import Health
from tests.servers import TOKEN, Running, started

COUNT = Path(__file__).with_name("count_stored.py")


@dataclass(frozen=True)
class Collector(Running):
    """One that runs."""

    def post(
        self,
        body: bytes,
        authorization: str = "",
        client: Path | None = None,
        path: str = "/v1/metrics",
        kind: str = "application/x-protobuf",
    ) -> tuple[int, dict[str, str]]:
        headers = {"content-type": kind, "content-encoding": "gzip"}
        if authorization:
            headers["authorization"] = f"Bearer {authorization}"
        return self._ask("POST", path, gzip.compress(body), headers, client)[:2]

    def get(self, path: str, authorization: str = TOKEN) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {authorization}"} if authorization else {}
        status, _, body = self._ask("GET", path, None, headers, None)
        return status, body

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], client: Path | None
    ) -> tuple[int, dict[str, str], bytes]:
        host = "::1" if "[::1]" in self.link else "127.0.0.1"
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(host, self.port, timeout=20, context=self.tls(client))
            if self.secure
            else http.client.HTTPConnection(host, self.port, timeout=20)
        )
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def token_of(self, node: str) -> str:
        """As `ingero fleet token` makes it from the same file."""
        secret = (self.home / ".ingero/server/node-secret").read_bytes().strip()
        return token_for(secret, node)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)


@contextmanager
def collector(
    home: Path, *more: str, listen: str = "0.0.0.0:0", inside: Sequence[str] = (), **environ: str
) -> Iterator[Collector]:
    """With a token for people, and its store in its home; `inside`: what is to run it."""
    arguments: Sequence[str] = (
        "fleet",
        "serve",
        "--listen",
        listen,
        "--store",
        f"chdb://{home / 'db'}",
        *more,
    )
    variables = {"INGERO_TOKEN": TOKEN} | dict(environ)
    with started(Collector, arguments, home, variables, inside=inside) as made:
        yield made


def stored(home: Path) -> dict[tuple[str, str, int], int]:
    """How often each batch is in the store of a collector that has ended."""
    done = subprocess.run(
        [sys.executable, COUNT, str(home / "db")], capture_output=True, text=True, check=True
    )
    return {(node, run, number): count for node, run, number, count in json.loads(done.stdout)}


def body(health: Health) -> bytes:
    return otlp.metrics(health)


def nodes(running: Collector, token: str = TOKEN) -> list[dict[str, Any]]:
    status, text = running.get("/api/v1/fleet", token)
    assert status == 200
    found: list[dict[str, Any]] = json.loads(text)["nodes"]
    return found
