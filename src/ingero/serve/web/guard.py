"""What every request passes before the application sees it, and what every answer carries.

In this order: its headers' length, the name it asked for (a page of somebody else's must not reach us
through DNS), where it was sent from, who sent it, how large it is, how long it takes.
Plain ASGI, so that every server of ours can use it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from ingero.serve.web.connections import address_of, is_ours
from ingero.serve.web.sessions import Sessions, Tokens

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)
API = "/api/"
SECURITY_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"strict-transport-security": b"max-age=31536000",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}


@dataclass(frozen=True)
class Rules:
    """Who may ask what, and at what length."""

    hosts: frozenset[str]  # names that may stand in Host, lower case, no port
    tokens: Tokens | None = None  # None: whoever gets through TLS, or is_ours with same_user
    same_user: bool = False  # only this machine's connections of our own user
    owner: int = field(default_factory=os.geteuid)  # who that is, also once the server has become nobody
    max_header_bytes: int = 16 << 10
    max_body_bytes: int = 256 << 10
    seconds: float = 120.0
    streams: frozenset[str] = frozenset()  # paths whose answers may go on for ever
    headers: tuple[tuple[bytes, bytes], ...] = ()  # these instead of the usual ones
    sessions: Sessions | None = None  # of browsers, which show no token after the first time
    open_paths: frozenset[str] = frozenset()  # for whoever still has to sign in; nothing is told there
    login: str | None = None  # where a browser without a session is sent


class Refused(Exception):  # noqa: N818 - no error of ours
    """The request is answered here."""

    def __init__(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


class Guard:
    """Stands before an ASGI application."""

    def __init__(self, app: Application, rules: Rules) -> None:
        self._app, self._rules = app, rules
        self._headers = {**SECURITY_HEADERS, **dict(rules.headers)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": self._with_ours(message.get("headers", ()))}
            await send(message)

        try:
            await self._admit(scope)
            async with asyncio.timeout(None if scope["path"] in self._rules.streams else self._rules.seconds):
                body = await _whole_body(scope, receive, self._rules.max_body_bytes)
                await self._app(scope, _replayed(body, receive), sending)
        except Refused as refusal:
            log.info("refused %s from %s: %s", scope["method"], scope.get("client"), refusal)
            await _refuse(refusal, scope["path"], sending)
        except TimeoutError:
            log.warning("a request of %s took longer than %g s", scope.get("client"), self._rules.seconds)
            if started:
                raise
            await _refuse(Refused(503, "took too long", (b"connection", b"close")), scope["path"], sending)

    async def _admit(self, scope: Scope) -> None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._rules.max_header_bytes:
            raise Refused(431, "headers are too long", (b"connection", b"close"))
        if not scope.get("query_string", b"").isascii():  # bytes beyond it come as %XX
            raise Refused(400, "the address has bytes that none has")
        headers = _single(scope["headers"])
        host = _require_host(headers.get(b"host"), scope, self._rules.hosts)
        _require_origin(headers.get(b"origin"), host)
        if scope["path"] in self._rules.open_paths:
            return
        if self._rules.tokens is not None:
            _require_credentials(scope, headers, self._rules)
        elif self._rules.same_user and not await asyncio.to_thread(
            is_ours, scope.get("client"), scope.get("server"), self._rules.owner
        ):
            raise Refused(401, "another user of this machine; a token would let you in")

    def _with_ours(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return [pair for pair in headers if pair[0].lower() not in self._headers] + list(
            self._headers.items()
        )


def _single(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Those we decide by; each at most once, or two servers could read two different ones."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in (b"host", b"origin", b"authorization", b"content-length"):
            if name in found:
                raise Refused(400, f"more than one {name.decode()}")
            found[name] = value
    return found


def _require_host(given: bytes | None, scope: Scope, allowed: frozenset[str]) -> str:
    """The Host header in lower case, when it names us."""
    text = (given or b"").decode("latin-1").lower()
    name = _host_name(text)
    address = address_of(name)
    server = scope.get("server")
    # An address cannot be pointed elsewhere by anybody's DNS: the one the request came in on will do.
    reached = address is not None and server is not None and address == address_of(server[0])
    if not name or not (reached or name in allowed):
        raise Refused(421, "not the name of this server; --allowed-host adds one")
    return text


def _host_name(text: str) -> str:
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""


def _require_origin(given: bytes | None, host: str) -> None:
    """A browser says which page sent it: only our own may."""
    if given is None:
        return
    origin = given.decode("latin-1").lower()
    if origin not in (f"https://{host}", f"http://{host}"):
        raise Refused(403, "sent by a page of another site")


def _require_credentials(scope: Scope, headers: dict[bytes, bytes], rules: Rules) -> None:
    """A token, or the session of a browser: for what is more than looking, from a page of ours."""
    assert rules.tokens is not None
    if rules.sessions is not None and b"authorization" not in headers:
        looking = scope["method"] in ("GET", "HEAD")
        if (looking or b"origin" in headers) and rules.sessions.accept(scope["headers"]):
            return
        if looking and rules.login and _wants_page(scope["headers"]):
            raise Refused(303, "sign in", (b"location", _login_for(scope, rules.login)))
    _require_token(headers.get(b"authorization", b""), rules.tokens)


def _login_for(scope: Scope, login: str) -> bytes:
    """Where to sign in; the page that was asked for is opened afterwards."""
    query = scope.get("query_string", b"").decode("latin-1")
    wanted = f"{scope['path']}?{query}" if query else scope["path"]
    return f"{login}?{urlencode({'next': wanted})}".encode() if wanted != "/" else login.encode()


def _wants_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def _require_token(given: bytes, tokens: Tokens) -> None:
    scheme, _, token = given.partition(b" ")
    if scheme.lower() != b"bearer" or not tokens.accept(token.strip()):
        raise Refused(401, "no valid token", (b"www-authenticate", b'Bearer realm="ingero"'))


async def _whole_body(scope: Scope, receive: Receive, limit: int) -> list[Message]:
    """The messages of the body, no more than allowed."""
    declared = _single(scope["headers"]).get(b"content-length", b"0")
    if not declared.isdigit() or int(declared[:20]) > limit:
        raise Refused(413, f"larger than {limit} bytes", (b"connection", b"close"))
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return [message]
        body += message.get("body", b"")
        if len(body) > limit:
            raise Refused(413, f"larger than {limit} bytes", (b"connection", b"close"))
        if not message.get("more_body", False):
            return [{"type": "http.request", "body": bytes(body), "more_body": False}]


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    async def next_message() -> Message:
        return messages.pop(0) if messages else await receive()

    return next_message


async def _refuse(refusal: Refused, path: str, send: Send) -> None:
    """As the rest of the API says it: in JSON."""
    api = path.startswith(API)
    body = json.dumps({"error": refusal.text, "hint": ""}).encode() if api else f"{refusal.text}\n".encode()
    headers = [
        (b"content-type", b"application/json" if api else b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *refusal.headers,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
