"""The metrics as a web application: one path, one method. Who may ask is decided before it.

Beside it stands whether the agent is alive, for a kubelet, which has no token: that, and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ingero.serve.metrics.exposition import Read, SnapshotTexts

PATH, ALIVE = "/metrics", "/alive"
STANDS_S = 60  # without a look at the kernel
LAST_LOOK = "agent.last_window.timestamp"
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Callable[[], Awaitable[Message]], Send], Awaitable[None]]


def scraped_app(read: Read) -> Application:
    """ASGI; text is made in a thread, so that a large one does not keep others waiting."""
    texts = SnapshotTexts(read)

    async def app(scope: Message, receive: Any, send: Send) -> None:  # noqa: ARG001
        if scope["type"] != "http":
            return
        if scope["path"] == ALIVE:
            alive = await asyncio.to_thread(_is_alive, read)
            await _answer(send, 200 if alive else 503, b"alive\n" if alive else b"stands\n")
        elif scope["path"] != PATH:
            await _answer(send, 404, b"metrics are at /metrics\n", head=scope["method"] == "HEAD")
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, b"only GET\n", (b"allow", b"GET, HEAD"))
        else:
            await _metrics(scope, send, texts)

    return app


def _is_alive(read: Read) -> bool:
    last_s = max(
        (point.value for point in read().points.get(LAST_LOOK, ()) if isinstance(point.value, int | float)),
        default=0,
    )
    return time.time() - last_s < STANDS_S


async def _metrics(scope: Message, send: Send, texts: SnapshotTexts) -> None:
    asked = {name: value.decode("latin-1") for name, value in scope["headers"]}
    packed = "gzip" in asked.get(b"accept-encoding", "")
    body, content_type = await asyncio.to_thread(texts.get, asked.get(b"accept", ""), packed)
    more = [(b"content-type", content_type.encode()), (b"vary", b"accept, accept-encoding")]
    if packed:
        more.append((b"content-encoding", b"gzip"))
    await _answer(send, 200, body, *more, head=scope["method"] == "HEAD")


async def _answer(
    send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes], head: bool = False
) -> None:
    sized = [*headers, (b"content-length", str(len(body)).encode())]
    if not any(name == b"content-type" for name, _ in headers):
        sized.append((b"content-type", b"text/plain; charset=utf-8"))
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": b"" if head else body})
