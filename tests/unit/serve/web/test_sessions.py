"""Sessions of browsers: begun with a token, recognised without one, over when they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ingero.serve.web.guard import Guard, Rules
from ingero.serve.web.login import LOGIN, LOGOUT, SESSION, Login
from ingero.serve.web.sessions import HOURS, Sessions, Tokens

TOKEN, OTHER = "0123456789abcdef0123456789abcdef", "another-token-0123456789"
NOW_S = 1_800_000_000.0


def shown(value: str, name: str = "session") -> list[tuple[bytes, bytes]]:
    return [(b"cookie", f"theme=dark; {name}={value}; x".encode())]


def test_who_has_the_token_gets_a_session_and_nobody_else() -> None:
    sessions = Sessions(Tokens([TOKEN, OTHER]), "session")
    for token in (TOKEN, OTHER):
        value = sessions.begin(token.encode(), NOW_S)
        assert value is not None
        assert token not in value
        assert sessions.accept(shown(value), NOW_S)
    assert sessions.begin(b"a wrong one", NOW_S) is None
    assert sessions.begin(b"", NOW_S) is None


def test_a_session_ends_and_cannot_be_prolonged() -> None:
    sessions = Sessions(Tokens([TOKEN]), "session")
    value = sessions.begin(TOKEN.encode(), NOW_S)
    assert value is not None
    later = NOW_S + HOURS * 3600
    assert sessions.accept(shown(value), later - 1)
    assert not sessions.accept(shown(value), later)
    ends, _, signature = value.partition(".")
    assert not sessions.accept(shown(f"{int(ends) + 9999}.{signature}"), NOW_S)


def test_a_session_outlives_the_server_but_not_its_token() -> None:
    value = Sessions(Tokens([TOKEN]), "session").begin(TOKEN.encode(), NOW_S)
    assert value is not None
    assert Sessions(Tokens([OTHER, TOKEN]), "session").accept(shown(value), NOW_S)
    assert not Sessions(Tokens([OTHER]), "session").accept(shown(value), NOW_S)
    assert not Sessions(Tokens([TOKEN]), "session").accept(shown(value, "other"), NOW_S)


@pytest.mark.parametrize(
    "value", ["", ".", "1.", "x.y", "9" * 500, "١٢٣.a", f"9999999999.{'0' * 64}", "-1.0"]
)
def test_what_nobody_gave_out_is_no_session(value: str) -> None:
    cookies = [(b"cookie", b"session=" + value.encode("utf-8"))]
    assert not Sessions(Tokens([TOKEN]), "session").accept(cookies, NOW_S)


async def application(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"secret"})


def ask(
    method: str, path: str, headers: dict[bytes, bytes], body: bytes = b""
) -> tuple[int, dict[bytes, bytes]]:
    sessions = Sessions(Tokens([TOKEN]), "session")
    rules = Rules(
        frozenset({"localhost"}), Tokens([TOKEN]), sessions=sessions, open_paths=frozenset({LOGIN, SESSION}),
        login=LOGIN,
    )  # fmt: skip
    scope = {
        "type": "http", "method": method, "path": path,
        "client": ("192.0.2.7", 4000), "server": ("192.0.2.1", 8080),
        "headers": list({b"host": b"localhost", **headers}.items()),
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(Login(application, sessions, secure=True), rules)(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])


def signed_in() -> dict[bytes, bytes]:
    status, headers = ask("POST", LOGIN, {}, f'{{"token": "{TOKEN}"}}'.encode())
    assert status == 204
    cookie = headers[b"set-cookie"]
    for attribute in (b"HttpOnly", b"SameSite=Strict", b"Secure", b"Path=/"):
        assert attribute in cookie
    return {b"cookie": cookie.partition(b";")[0]}


def test_signing_in_opens_what_was_closed() -> None:
    assert ask("GET", "/api", {})[0] == 401
    assert ask("GET", "/api", signed_in())[0] == 200
    assert ask("GET", SESSION, signed_in())[0] == 204
    assert ask("GET", SESSION, {})[0] == 205
    assert (
        b"Max-Age=0" in ask("POST", LOGOUT, signed_in() | {b"origin": b"https://localhost"})[1][b"set-cookie"]
    )


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"token": 1}', b'{"token": "wrong-but-long-enough"}', b"[" * 5000, b"\xff"]
)
def test_a_wrong_token_is_no_way_in(body: bytes) -> None:
    status, headers = ask("POST", LOGIN, {}, body)
    assert status == 401
    assert b"set-cookie" not in headers


def test_a_session_acts_only_from_a_page_of_ours() -> None:
    assert ask("POST", "/api", signed_in())[0] == 401
    assert ask("POST", "/api", signed_in() | {b"origin": b"https://localhost"})[0] == 200
    assert ask("POST", "/api", signed_in() | {b"origin": b"https://evil.example"})[0] == 403


def test_a_browser_without_a_session_is_sent_to_sign_in() -> None:
    status, headers = ask("GET", "/", {b"accept": b"text/html,*/*"})
    assert (status, headers[b"location"]) == (303, b"/login")
    assert ask("POST", "/", {b"accept": b"text/html"})[0] == 401
    assert ask("GET", "/", {b"accept": b"text/html", b"authorization": b"Bearer wrong"})[0] == 401
