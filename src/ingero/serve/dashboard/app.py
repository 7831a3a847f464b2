"""The dashboard as a web application: API, pages and the stream of changes.

Host, origin, sender and size are checked by whoever stands before it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ingero.config_tenants import Cost
from ingero.errors import IngeroError
from ingero.serve.answers.asked_nodes import Fleet
from ingero.serve.answers.recordings import recording_part
from ingero.serve.dashboard.api import (
    SEE_API,
    SQL_THREADS,
    THREADS,
    BadRequest,
    asked_with,
    endpoint,
    failed,
    openapi,
    told,
)
from ingero.serve.dashboard.openapi import PREFIX
from ingero.serve.dashboard.pages import PAGES, files, page
from ingero.serve.dashboard.routes import RECORDING as KIND
from ingero.serve.dashboard.routes import ROUTES, OfRecording
from ingero.serve.dashboard.source import DashboardSource

API, LIVE = "/api/", f"{PREFIX}/live"
# SQLite lets go of the interpreter at each row: beside another answer, which computes, a quick one would have
# to wait Python's usual 5 ms for it again and again.
SWITCH_S = 0.0005


def make_app(
    db: Path | None,
    cost: Cost | None = None,
    fleet: Callable[[], Fleet | None] = lambda: None,
    fleet_page: str = "",
) -> tuple[Starlette, Callable[[], None]]:
    """ASGI, which asks `db`, or the usual database, and other nodes; and what ends its streams."""
    source = DashboardSource(db, cost, fleet, fleet_page)
    sys.setswitchinterval(SWITCH_S)
    # Somebody's SQL may take long: it has threads of its own, so that the pages need not wait for it.
    threads = {"GET": ThreadPoolExecutor(THREADS, "answers"), "POST": ThreadPoolExecutor(SQL_THREADS, "sql")}
    changes = Changes(source)
    recording, threads["recording"] = make_recording(source)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(changes.watch())
        threads["GET"].submit(source.diagnosing.start)
        yield
        watching.cancel()
        for each in threads.values():
            each.shutdown(wait=False, cancel_futures=True)

    async def live(_: Request) -> Response:
        return EventSourceResponse(changes.events(), ping=3600)

    api = [
        Route(f"{PREFIX}/{each.path}", endpoint(each, source, threads[each.method]), methods=[each.method])
        for each in ROUTES
    ]

    async def no_session(_: Request) -> Response:
        return Response(status_code=205)  # where a login stands before us, it answers

    async def unknown(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        if not request.url.path.startswith(API):
            return PlainTextResponse(str(getattr(error, "detail", error)), status)
        return failed(status, f"{request.method} {request.url.path} is no question of ours", SEE_API)

    static = files()
    app = Starlette(
        routes=[
            *api,
            Route(LIVE, live),
            Route(f"{PREFIX}/recording", recording),
            Route(f"{PREFIX}/openapi.json", openapi),
            *(Route(path, page(static, "index.html")) for path in PAGES),
            Route("/session", no_session),
            Route("/login", page(static, "login.html"), methods=["GET"]),
            *(Route(f"/{name}", page(static, name)) for name in static if not name.endswith(".html")),
        ],
        lifespan=running,
        exception_handlers={HTTPException: unknown},
    )
    return app, changes.stop


# Tells browsers when the database has changed: one look at the file serves all of them.


LOOK_S = 0.5
RETRY_MS = 1000  # after which a browser that lost us tries again
QUIET_S = 15.0  # after so long a comment is sent, so that nobody takes the connection for dead


class Changes:
    """Looks at the file while anybody listens."""

    def __init__(self, source: DashboardSource, look_s: float = LOOK_S) -> None:
        self._source, self._look_s = source, look_s
        self._number = 0
        self._changed = asyncio.Condition()
        self._over = asyncio.Event()

    def stop(self) -> None:
        """Every stream ends, and nobody has to be cut off."""
        self._over.set()

    async def watch(self) -> None:
        """Until cancelled."""
        seen = await asyncio.to_thread(lambda: self._source.stamp)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), self._look_s)
                async with self._changed:
                    self._changed.notify_all()
                return
            now = await asyncio.to_thread(lambda: self._source.stamp)
            if now != seen:
                seen = now
                async with self._changed:
                    self._number += 1
                    self._changed.notify_all()

    async def events(self) -> AsyncIterator[dict[str, str | int]]:
        """First where we are, then every change; several that come at once are one."""
        seen = -1
        while not self._over.is_set():
            if seen != self._number:
                seen = self._number
                told = json.dumps({"number": seen, "now_ns": time.time_ns()})
                yield {"event": "changed", "data": told, "retry": RETRY_MS}
                continue
            try:
                async with asyncio.timeout(QUIET_S), self._changed:
                    await self._changed.wait()
            except TimeoutError:
                yield {"comment": "still here"}


# A part of the recording, handed out as a SQLite file while it is read from disk.
#
# One at a time is made: it takes the disk's time, and who asks many nodes asks each of them once.


CHUNK = 1 << 18


def make_recording(source: DashboardSource) -> tuple[Any, ThreadPoolExecutor]:
    """The endpoint, and the thread it works in."""
    thread = ThreadPoolExecutor(1, "recording")

    async def recording(request: Request) -> Response:
        try:
            asked = await asked_with(request, OfRecording)
            file, size = await asyncio.get_running_loop().run_in_executor(thread, _made, source, asked)
        except BadRequest as error:
            return failed(400, str(error), "See /api/v1/openapi.json.")
        except IngeroError as error:
            return told(error)
        return StreamingResponse(_parts(file), media_type=KIND, headers={"content-length": str(size)})

    return recording, thread


def _made(source: DashboardSource, asked: OfRecording) -> tuple[BinaryIO, int]:
    with recording_part(source.db, asked.range, asked.tables, asked.most_bytes, asked.last) as path:
        file = path.open("rb")  # it lives on without a name until it is closed
    return file, os.fstat(file.fileno()).st_size


async def _parts(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while part := await asyncio.to_thread(file.read, CHUNK):
            yield part
