"""Requests to the dashboard, to MCP and to the metrics, as text, straight into the applications.

Behind the same guard as always, with a good token and host in the corpus, so that most
inputs reach the questions themselves. An answer of 500 and above is a failure.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.fuzz.databases import sound
from benchmarks.fuzz.target import Try
from ingero.config import Config
from ingero.model.metrics import SeriesPoint, Snapshot
from ingero.serve.dashboard import routes
from ingero.serve.dashboard.app import make_app
from ingero.serve.mcp.http import http_app
from ingero.serve.mcp.server import make_server
from ingero.serve.mcp.source import AssistantSource
from ingero.serve.metrics.scraping import scraped_app
from ingero.serve.web.guard import Guard, Rules
from ingero.serve.web.sessions import Tokens

TOKEN = "an-example-token-for-fuzzing-0123456789"
ANSWER_S = 30.0
FAILED = 500


def scope_of(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """As a server would hand it on: lines it would refuse itself are left out."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    method, path, *_ = [*first.split(b" "), b"GET", b"/"][:3] if b" " in first else [b"GET", first]
    path, _, query = path.partition(b"?")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon and name.strip():
            headers.append((name.strip().lower(), value.strip()))
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "https",
        "method": method.decode("latin-1"),
        "path": urllib.parse.unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path, "query_string": query, "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 4000), "server": ("127.0.0.1", 8443),
    }  # fmt: skip
    return scope, body


class Host:
    """An application with its lifespan, on a loop of its own."""

    def __init__(self, app: Any) -> None:
        self._app = Guard(app, Rules(hosts=frozenset({"localhost"}), tokens=Tokens([TOKEN])))
        self._loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        self._began = asyncio.Event()
        self._life = self._loop.create_task(self._live())
        self._loop.run_until_complete(asyncio.wait_for(self._began.wait(), ANSWER_S))

    async def _live(self) -> None:
        asked = [{"type": "lifespan.startup"}]

        async def receive() -> Any:
            if asked:
                return asked.pop()
            await self._ends.wait()
            return {"type": "lifespan.shutdown"}

        async def send(_: Any) -> None:
            self._began.set()

        await self._app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
        self._began.set()  # an application without a lifespan says nothing

    def ask(self, raw: bytes) -> int:
        scope, body = scope_of(raw)
        return self._loop.run_until_complete(asyncio.wait_for(self._ask(scope, body), ANSWER_S))

    async def _ask(self, scope: dict[str, Any], body: bytes) -> int:
        statuses: list[int] = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await self._app(scope, receive, send)
        return statuses[0] if statuses else FAILED

    def close(self) -> None:
        self._ends.set()
        self._loop.run_until_complete(asyncio.wait([self._life], timeout=ANSWER_S))
        self._loop.close()


@contextmanager
def asked(make: Any) -> Iterator[Try]:
    """Requests to what `make` gives for a database."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="fuzz-") as folder:
        db = Path(folder) / "a.db"
        db.write_bytes(sound())
        host = Host(make(db))

        def attempt(data: bytes) -> None:
            status = host.ask(data)
            if status >= FAILED:
                raise AssertionError(f"answered with {status}")

        try:
            yield attempt
        finally:
            host.close()
            logging.disable(logging.NOTSET)


def dashboard(db: Path) -> Any:
    routes.SQL_SECONDS = 1.0  # somebody's SQL may take as long as it is allowed to
    return make_app(db)[0]


def mcp(db: Path) -> Any:
    return http_app(make_server(AssistantSource(db, Config())))


def metrics(_db: Path) -> Any:
    points = {"probe_hits_total": [SeriesPoint((), 5.0, 1)]}
    return scraped_app(lambda: Snapshot(2, 1, "n1", points))
