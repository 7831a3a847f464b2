"""What the recording does not have is not found, on every route alike; nonsense is a bad request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.requests import Request

from ingero.serve.dashboard.api import endpoint
from ingero.serve.dashboard.openapi import document
from ingero.serve.dashboard.routes import ROUTES, OfOperations, OfProcess, Route
from ingero.serve.dashboard.source import DashboardSource
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, call, fixed_clock, process, window

OF_PROCESS = [route for route in ROUTES if issubclass(route.asked, OfProcess)]
OF_OPERATIONS = [route for route in ROUTES if issubclass(route.asked, OfOperations)]
BY_PATH = {route.path: route for route in ROUTES}
Status = Callable[[Route, str], int]


def name(route: Route) -> str:
    return route.path


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """Of an answer to a route with these parameters."""
    db = tmp_path / "ingero.db"
    with Writer(db, "a", fixed_clock(), OPERATIONS) as writer:
        writer.write(window(calls=[call(pid=100)], processes=[process(100)]))

    def ask(route: Route, query: str) -> int:
        scope = {"type": "http", "method": "GET", "query_string": query.encode(), "headers": []}
        with ThreadPoolExecutor(1) as threads:
            return asyncio.run(endpoint(route, DashboardSource(db), threads)(Request(scope))).status_code

    return ask


@pytest.mark.parametrize("route", OF_PROCESS, ids=name)
def test_an_unknown_process_is_not_found(status: Status, route: Route) -> None:
    assert status(route, "pid=4821") == 404


@pytest.mark.parametrize("route", [*OF_OPERATIONS, BY_PATH["flame"]], ids=name)
def test_an_unknown_operation_is_not_found(status: Status, route: Route) -> None:
    assert status(route, "op=nothing") == 404


@pytest.mark.parametrize("route", OF_OPERATIONS, ids=name)
@pytest.mark.parametrize("asked", ["container=0123456789ab", "pod=nobody", "namespace=nowhere"])
def test_an_unknown_container_is_not_found(status: Status, route: Route, asked: str) -> None:
    assert status(route, asked) == 404


@pytest.mark.parametrize("asked", ["id=a:999", "id=b:1"])
def test_an_unknown_event_is_not_found(status: Status, asked: str) -> None:
    assert status(BY_PATH["event"], asked) == 404


@pytest.mark.parametrize(
    "asked", ["id=x", "id=a:", "id=:1", "id=a:1x", "id=a:-1", "id=a:9999999999999999999"]
)
def test_what_is_no_id_is_a_bad_request(status: Status, asked: str) -> None:
    assert status(BY_PATH["event"], asked) == 400


@pytest.mark.parametrize("route", OF_PROCESS, ids=name)
def test_a_malformed_process_is_a_bad_request(status: Status, route: Route) -> None:
    assert status(route, "pid=x") == 400
    assert status(route, "node=nobody") == 404


@pytest.mark.parametrize(
    "path", ["operations", "stacks", "graphs", "timeline", "flame", "heatmap", "kernels"]
)
def test_a_process_that_was_there_is_answered(status: Status, path: str) -> None:
    assert status(BY_PATH[path], "pid=100") == 200


def test_the_document_says_so() -> None:
    for route in ROUTES:
        told = set(document()["paths"][f"/api/v1/{route.path}"][route.method.lower()]["responses"])
        assert told >= ({"200", "400", "404", "503"} if route.asked.__struct_fields__ else {"200", "400"})
