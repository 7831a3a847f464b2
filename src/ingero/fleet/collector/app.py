"""The collector as a web application: what nodes send, and what people and programs ask.

Host, size and time are checked by whoever stands before it, and so is who may look; who may send is
decided in receiving.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ingero.errors import IngeroError
from ingero.fleet.collector import exposition
from ingero.fleet.collector.commit import Committer
from ingero.fleet.collector.credentials import Credentials
from ingero.fleet.collector.history import history
from ingero.fleet.collector.receiving import PATHS, READING, receiver
from ingero.fleet.collector.status import Filters, filtered
from ingero.fleet.collector.store import Store
from ingero.fleet.collector.watch import Watch
from ingero.units import clean

STATUS, HISTORY, METRICS = "/api/v1/fleet", "/api/v1/fleet/node", "/metrics"
BODY_BYTES = 4 << 20


class OfNode(msgspec.Struct, frozen=True):
    node: str
    cluster: str = ""
    hours: Annotated[float, msgspec.Meta(gt=0, le=24)] = 1.0


def make_app(
    store: Store,
    committer: Committer,
    watch: Watch,
    credentials: Credentials,
    pages: Mapping[str, Any],
    node_page: str = "",
) -> Starlette:
    """ASGI; `pages` are endpoints of files by path, `node_page` is the address of a node's own."""
    counts: Counter[str] = Counter()

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        committer.start()
        watch.start()
        yield
        await asyncio.to_thread(watch.stop)
        await asyncio.to_thread(committer.stop)
        store.close()

    async def status(request: Request) -> Response:
        asked = _asked(request, Filters)
        if isinstance(asked, Response):
            return asked
        if not watch.at_ns:
            try:
                await asyncio.to_thread(watch.look_first)
            except IngeroError as error:
                return _failed(503, error.message, error.hint)
        found = await asyncio.to_thread(
            lambda: msgspec.json.encode(filtered(watch.nodes, asked, watch.at_ns, node_page))
        )
        return Response(found, media_type="application/json")

    async def of_node(request: Request) -> Response:
        asked = _asked(request, OfNode)
        if isinstance(asked, Response):
            return asked
        try:
            found = await asyncio.to_thread(history, store, asked.cluster, asked.node, asked.hours)
        except IngeroError as error:
            return _failed(503, error.message, error.hint)
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def metrics(_: Request) -> Response:
        text = await asyncio.to_thread(exposition.text, watch, committer, counts)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    turn = asyncio.Semaphore(READING)
    advice = lambda: watch.advice  # noqa: E731
    return Starlette(
        routes=[
            *(
                Route(path, receiver(signal, credentials, committer, advice, counts, turn), methods=["POST"])
                for path, signal in PATHS.items()
            ),
            Route(STATUS, status),
            Route(HISTORY, of_node),
            Route(METRICS, metrics),
            *(Route(path, endpoint) for path, endpoint in pages.items()),
        ],
        lifespan=running,
    )


def _asked(request: Request, kind: type[Any]) -> Any:
    values = {name: value for name, value in request.query_params.items() if value}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        return _failed(400, clean(str(error), 300), "See docs/fleet.md.")


def _failed(status: int, error: str, hint: str) -> Response:
    body = msgspec.json.encode({"error": clean(error, 1000), "hint": clean(hint, 1000)})
    return Response(body, status, media_type="application/json")
