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
from ingero.serve.answers.asked_nodes import ask_one
from ingero.serve.answers.query import require_known
from ingero.serve.answers.recordings import TooLargeError
from ingero.serve.called import runnable
from ingero.serve.dashboard.openapi import Failure, document
from ingero.serve.dashboard.routes import OfTenant, Route
from ingero.serve.dashboard.source import DashboardSource
from ingero.units import clean

log = logging.getLogger(__name__)
THREADS, SQL_THREADS = 4, 2
STATUS = ((UsageError, 400), (TargetError, 404), (TooLargeError, 413), (StoreError, 503))
SEE_API = "See /api/v1/openapi.json."
ELSEWHERE = "fleet"  # the parameter that names another node, by its address
Endpoint = Callable[[Request], Awaitable[Response]]


class BadRequest(Exception):  # noqa: N818 - no error of ours
    """Parameters that are not what they should be."""


def endpoint(route: Route, source: DashboardSource, threads: ThreadPoolExecutor) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            loop = asyncio.get_running_loop()
            if ELSEWHERE in request.query_params:
                body = await loop.run_in_executor(
                    threads, _elsewhere, route, source, *await _forwarded(request)
                )
                return Response(body, media_type="application/json")
            asked = await asked_with(request, route.asked)
            body = await loop.run_in_executor(threads, _body, route, source, asked)
        except BadRequest as error:
            return failed(400, str(error), SEE_API)
        except IngeroError as error:
            return told(error)
        return Response(body, media_type="application/json")

    return answer


async def _forwarded(request: Request) -> tuple[dict[str, str], Any]:
    """The parameters as they came, and the body: the node that is asked checks them."""
    parameters = {name: value[:2000] for name, value in request.query_params.items() if value}
    body = await request.body()
    try:
        return parameters, msgspec.json.decode(body) if request.method == "POST" else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(clean(str(error), 300)) from error


def _elsewhere(route: Route, source: DashboardSource, parameters: dict[str, str], body: Any) -> bytes:
    """Another node's answer to the same question."""
    if not route.elsewhere:
        raise UsageError(f"{route.path} is not asked of another node", hint=f"Leave {ELSEWHERE} out.")
    rest = {name: value for name, value in parameters.items() if name != ELSEWHERE}
    return ask_one(source.fleet(), parameters.get(ELSEWHERE, ""), route.path, rest, body)


def told(error: IngeroError) -> Response:
    """What we expect to go wrong, with its status."""
    status = next((number for kind, number in STATUS if isinstance(error, kind)), 500)
    return failed(status, error.message, error.hint)


def openapi(_: Request) -> Response:
    return Response(msgspec.json.encode(document()), media_type="application/json")


async def asked_with(request: Request, kind: type[msgspec.Struct]) -> Any:
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


def _body(route: Route, source: DashboardSource, asked: Any) -> bytes:
    if not route.kept:
        return _encoded(route, source, asked)
    key = (route.path, asked, source.stamp)
    return source.answers.once(key, lambda: _encoded(route, source, asked))


def _encoded(route: Route, source: DashboardSource, asked: Any) -> bytes:
    if isinstance(asked, OfTenant):  # the same on every route: an unknown one is not found
        require_known(source.db, asked.filters, asked.node)
    return msgspec.json.encode(route.ask(source, asked))


def failed(status: int, error: str, hint: str) -> Response:
    body = msgspec.json.encode(Failure(clean(error, 1000), clean(runnable(hint or ""), 1000)))
    return Response(body, status, media_type="application/json")
