"""What nodes send is answered whatever the store does: a failure of ours is no refusal."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from ingero.errors import StoreError
from ingero.fleet.collector.commit import Committer
from ingero.fleet.collector.credentials import Credentials
from ingero.fleet.collector.receiving import receiver
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


def answer(body: bytes, error: Exception | None = None, **more: Any) -> tuple[Response, Counter[str]]:
    committer, counts = Committer(Failing(error), linger_s=0.0), Counter[str]()
    committer.start()
    endpoint = receiver("metrics", Credentials(None, False), committer, dict, counts, **more)
    response = asyncio.run(endpoint(post(body)))  # type: ignore[arg-type]
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
