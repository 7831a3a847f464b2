"""Answers over HTTP: parameters checked, the question asked in a thread, the answer kept as bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ingero.errors import IngeroError, StoreError, TargetError, UsageError
from ingero.serve.answers.known import require_known
from ingero.serve.dashboard.openapi import Failure, document
from ingero.serve.dashboard.questions import OfProcess
from ingero.serve.dashboard.routes import Route
from ingero.serve.dashboard.source import Source
from ingero.units import clean

log = logging.getLogger(__name__)
THREADS, SQL_THREADS = 4, 2
STATUS = ((UsageError, 400), (TargetError, 404), (StoreError, 503))
Endpoint = Callable[[Request], Awaitable[Response]]


class BadRequest(Exception):  # noqa: N818 - no error of ours
    """Parameters that are not what they should be."""


def endpoint(route: Route, source: Source, threads: ThreadPoolExecutor) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            asked = await _asked(request, route.asked)
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(threads, _body, route, source, asked)
        except BadRequest as error:
            return _failed(400, str(error), "See /api/v1/openapi.json.")
        except IngeroError as error:
            status = next((number for kind, number in STATUS if isinstance(error, kind)), 500)
            return _failed(status, error.message, error.hint)
        return Response(body, media_type="application/json")

    return answer


def openapi(_: Request) -> Response:
    return Response(msgspec.json.encode(document()), media_type="application/json")


async def _asked(request: Request, kind: type[msgspec.Struct]) -> Any:
    try:
        if request.method == "POST":
            return msgspec.json.decode(await request.body(), type=kind)
        pairs = list(request.query_params.multi_items())
        values = {name: value for name, value in pairs if value}
        if len({name for name, _ in pairs}) < len(pairs):
            raise BadRequest("a parameter is given twice")
        return msgspec.convert(values, kind, strict=False)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(clean(str(error), 300)) from error


def _body(route: Route, source: Source, asked: Any) -> bytes:
    if not route.kept:
        return _encoded(route, source, asked)
    key = (route.path, asked, source.stamp)
    return source.answers.once(key, lambda: _encoded(route, source, asked))


def _encoded(route: Route, source: Source, asked: Any) -> bytes:
    if isinstance(asked, OfProcess):  # the same on every route: an unknown one is not found
        require_known(source.db, asked.filters, asked.node)
    return msgspec.json.encode(route.ask(source, asked))


def _failed(status: int, error: str, hint: str) -> Response:
    body = msgspec.json.encode(Failure(clean(error, 1000), clean(hint or "", 1000)))
    return Response(body, status, media_type="application/json")
