"""Signing in from a browser: a token is posted once, a cookie that scripts cannot read comes back."""

from __future__ import annotations

import json

from ingero.serve.web.guard import Application, Message, Receive, Scope, Send
from ingero.serve.web.sessions import HOURS, Sessions

LOGIN, LOGOUT, SESSION = "/login", "/logout", "/session"


class Login:
    """Stands between the guard and an application with pages."""

    def __init__(self, app: Application, sessions: Sessions, secure: bool) -> None:
        self._app, self._sessions = app, sessions
        self._attributes = f"Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = (scope.get("method"), scope.get("path")) if scope["type"] == "http" else None
        if asked == ("POST", LOGIN):
            session = self._sessions.begin(_token(await receive()))
            await (_answer(send, 204, self._cookie(session)) if session else _answer(send, 401))
        elif asked == ("GET", SESSION):  # a question whose answer is no error, unlike a refusal
            await _answer(send, 204 if self._sessions.accept(scope["headers"]) else 205)
        elif asked == ("POST", LOGOUT):
            await _answer(send, 204, self._cookie("", 0))
        else:
            await self._app(scope, receive, send)

    def _cookie(self, value: str, seconds: int = HOURS * 3600) -> bytes:
        return f"{self._sessions.cookie}={value}; Max-Age={seconds}; {self._attributes}".encode()


def _token(message: Message) -> bytes:
    """Of `{"token": "..."}`; the guard hands a body on in one message."""
    try:
        given = json.loads(message.get("body", b""))["token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return b""
    return given.strip().encode("utf-8", "replace") if isinstance(given, str) else b""


async def _answer(send: Send, status: int, cookie: bytes | None = None) -> None:
    headers = [(b"content-length", b"0")] + ([(b"set-cookie", cookie)] if cookie else [])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
