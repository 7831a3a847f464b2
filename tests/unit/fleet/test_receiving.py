"""What nodes send is answered whatever the store does: a failure of ours is no refusal."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from ingero.errors import StoreError
from ingero.fleet.collector import receiving
from ingero.fleet.collector.commit import Committer
from ingero.fleet.collector.credentials import Credentials
from ingero.fleet.collector.otlp import Received
from ingero.fleet.collector.receiving import READING, receiver
from ingero.fleet.push import otlp
from ingero.model.fleet import Health
from tests.unit.fleet.rounds import health


class Failing:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def insert(self, _: Any) -> None:
        if self._error is not None:
            raise self._error


def post(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/x-protobuf")]
    scope = {"type": "http", "method": "POST", "path": "/v1/metrics", "headers": headers, "query_string": b""}
    return Request(scope, receive)


def answer(body: bytes, error: Exception | None = None) -> tuple[Response, Counter[str]]:
    committer, counts = Committer(Failing(error), linger_s=0.0), Counter[str]()
    committer.start()

    async def asked() -> Response:
        turn = asyncio.Semaphore(READING)
        return await receiver("metrics", Credentials(None, False), committer, dict, counts, turn)(post(body))

    response = asyncio.run(asked())
    committer.stop()
    return response, counts


def round_of(node: str = "n1", number: int = 1, **more: Any) -> Health:
    return health(node, number, at_ns=time.time_ns(), **more)


@pytest.mark.parametrize("error", [StoreError("it is away"), OverflowError("a number"), OSError("a socket")])
def test_whatever_fails_in_the_store_the_node_comes_again(error: Exception) -> None:
    response, counts = answer(otlp.metrics(round_of()), error)
    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert counts == {"store-failed": 1}
    assert answer(otlp.metrics(round_of()))[0].status_code == 200


def test_bodies_are_read_beside_the_loop_and_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are, others are answered."""
    at_once, most = 0, 0
    may_go, lock = threading.Event(), threading.Lock()

    def slow(*_: Any) -> Received:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        assert may_go.wait(10)
        with lock:
            at_once -= 1
        return Received([])

    monkeypatch.setattr(receiving, "_read", slow)
    committer = Committer(Failing(None), linger_s=0.0)
    committer.start()

    async def asked() -> list[Response]:
        turn = asyncio.Semaphore(READING)
        endpoint = receiver("metrics", Credentials(None, False), committer, dict, Counter(), turn)
        waiting = [asyncio.ensure_future(endpoint(post(b""))) for _ in range(8)]
        while most < READING:
            await asyncio.sleep(0.001)  # the loop turns
        may_go.set()
        return await asyncio.gather(*waiting)

    assert [each.status_code for each in asyncio.run(asked())] == [200] * 8
    assert most == READING
    committer.stop()
