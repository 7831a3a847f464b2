"""The MCP server as a web application: one path, one method.

Nothing is kept for a client between two requests, so there is nothing to exhaust; and
with nothing to tell unasked, the stream a client may try to open is refused, as the
protocol allows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

PATH = "/mcp"
BODY_BYTES = 256 << 10
_REFUSED = b"only POST\n"

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


def http_app(server: MCPServer[Any]) -> Application:
    """ASGI; host, origin, sender and size are checked by whoever stands before it."""
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    async def only_post(scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] != "POST":
            await _refuse(send)
        else:
            await app(scope, receive, send)

    return only_post


async def _refuse(send: Callable[[Message], Awaitable[None]]) -> None:
    headers = [(b"allow", b"POST"), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 405, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSED})
