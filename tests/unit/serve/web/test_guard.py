"""What passes the guard, request by request, without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ingero.serve.web.guard import SECURITY_HEADERS, Guard, Rules
from ingero.serve.web.sessions import Tokens

TOKEN = "0123456789abcdef0123456789abcdef"
HEADERS = {b"host": b"localhost", b"authorization": b"Bearer " + TOKEN.encode()}


async def application(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-frame-options", b"ALLOW")]})
    await send({"type": "http.response.body", "body": body})


def rules(**more: Any) -> Rules:
    return Rules(**{"hosts": frozenset({"localhost"}), "tokens": Tokens([TOKEN])} | more)


def ask(
    given: dict[bytes, bytes] | list[tuple[bytes, bytes]],
    body: tuple[bytes, ...] = (b"hello",),
    app: Any = application,
    query: bytes = b"",
    **more: Any,
) -> tuple[int, dict[bytes, bytes], bytes]:
    pairs = list(given.items()) if isinstance(given, dict) else given
    scope = {
        "type": "http", "method": "POST", "path": "/mcp", "headers": pairs, "query_string": query,
        "client": ("192.0.2.7", 4000), "server": ("192.0.2.1", 8443),
    }  # fmt: skip
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]
    parts[-1]["more_body"] = False

    async def receive() -> Any:
        return parts.pop(0) if parts else await asyncio.sleep(3600)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(app, rules(**more))(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(each.get("body", b"") for each in sent[1:])


def test_a_request_with_everything_right_gets_through_whole() -> None:
    status, headers, body = ask(HEADERS, (b"hel", b"", b"lo"))
    assert (status, body) == (200, b"hello")
    assert headers == SECURITY_HEADERS


@pytest.mark.parametrize(
    "changed, status",
    [
        ({b"host": b"evil.example"}, 421), ({b"host": b""}, 421), ({b"host": b"localhost:8443"}, 200),
        ({b"host": b"192.0.2.1:8443"}, 200), ({b"host": b"192.0.2.2"}, 421), ({b"host": b"localhost."}, 421),
        ({b"origin": b"https://localhost"}, 200), ({b"origin": b"https://localhost:1"}, 403),
        ({b"origin": b"null"}, 403), ({b"origin": b""}, 403), ({b"authorization": b""}, 401),
        ({b"authorization": TOKEN.encode()}, 401), ({b"authorization": b"Basic " + TOKEN.encode()}, 401),
        ({b"authorization": b"bearer " + TOKEN.encode()}, 200), ({b"authorization": b"Bearer "}, 401),
        ({b"authorization": b"Bearer \xff\xfe"}, 401), ({b"content-length": b"999999999"}, 413),
        ({b"content-length": b"-1"}, 413), ({b"content-length": b"9" * 4000}, 413),
        ({b"x-long": b"x" * 20_000}, 431),
    ],
)  # fmt: skip
def test_each_header_is_looked_at(changed: dict[bytes, bytes], status: int) -> None:
    got, headers, _ = ask(HEADERS | changed)
    assert got == status
    assert SECURITY_HEADERS.items() <= headers.items()


@pytest.mark.parametrize("name", [b"host", b"authorization", b"origin"])
def test_two_of_a_header_are_not_chosen_from(name: bytes) -> None:
    value = (HEADERS | {b"origin": b"https://localhost"})[name]
    assert ask([*HEADERS.items(), (name, value), (name, value)])[0] == 400


def test_a_body_longer_than_allowed_is_refused_however_it_comes() -> None:
    assert ask(HEADERS, (b"x" * 60, b"x" * 60), max_body_bytes=100)[0] == 413
    assert ask(HEADERS, (b"x" * 60, b"x" * 40), max_body_bytes=100)[0] == 200


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async def slow(*_: Any) -> None:
        await asyncio.sleep(3600)

    assert ask(HEADERS, app=slow, seconds=0.01)[0] == 503


def test_a_stream_may_take_its_time() -> None:
    async def steady(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.05)
        await application(scope, receive, send)

    assert ask(HEADERS, app=steady, seconds=0.01, streams=frozenset({"/mcp"}))[0] == 200


def test_without_a_token_only_our_own_user_gets_in() -> None:
    # No socket of this machine has these addresses, so nobody can tell whose it is.
    assert ask(HEADERS, tokens=None, same_user=True)[0] == 401
    assert ask(HEADERS, tokens=None)[0] == 200


def test_headers_of_the_application_can_be_allowed() -> None:
    framed = (b"x-frame-options", b"SAMEORIGIN")
    assert framed in ask(HEADERS, headers=(framed,))[1].items()


def test_a_websocket_is_closed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(application, rules())({"type": "websocket"}, None, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_an_address_with_bytes_that_none_has_is_refused() -> None:
    assert ask(HEADERS, query=b"since=5s&op=%ff")[0] == 200
    assert ask(HEADERS, query=b"since=\xff")[0] == 400
