"""The dashboard as a web application: API, pages and the stream of changes.

Host, origin, sender and size are checked by whoever stands before it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ingero.config_tenants import Cost
from ingero.serve.answers.asked_nodes import Fleet
from ingero.serve.dashboard.api import SEE_API, SQL_THREADS, THREADS, endpoint, failed, openapi
from ingero.serve.dashboard.live import Changes
from ingero.serve.dashboard.openapi import PREFIX
from ingero.serve.dashboard.pages import PAGES, files, page
from ingero.serve.dashboard.recording import make_recording
from ingero.serve.dashboard.routes import ROUTES
from ingero.serve.dashboard.source import Source

API, LIVE = "/api/", f"{PREFIX}/live"
# SQLite lets go of the interpreter at each row: beside another answer, which computes, a quick one would have
# to wait Python's usual 5 ms for it again and again.
SWITCH_S = 0.0005


def make_app(
    db: Path | None, cost: Cost | None = None, fleet: Callable[[], Fleet | None] = lambda: None
) -> tuple[Starlette, Callable[[], None]]:
    """ASGI, which asks `db`, or the usual database, and other nodes; and what ends its streams."""
    source = Source(db, cost, fleet)
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
