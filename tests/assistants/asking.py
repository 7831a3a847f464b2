"""MCP servers, and clients that ask them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests import servers
from tests.command import INGERO
from tests.servers import environment

EIGHT_KB = 8192
Calls = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Said:
    """One answer of a tool."""

    text: str
    failed: bool

    @property
    def value(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found


def command(db: Path, *more: str) -> list[str]:
    return [*INGERO, "mcp", "-d", str(db), *more]


def stdio_parameters(db: Path, home: Path, **environ: str) -> StdioServerParameters:
    program, *arguments = command(db)
    return StdioServerParameters(
        command=program, args=arguments, env=environment(home, **environ), cwd=str(home)
    )


def ask_stdio(db: Path, home: Path, calls: Calls, **environ: str) -> list[Said]:
    """All of them, one after the other, of one server."""

    async def ask() -> list[Said]:
        async with Client(stdio_client(stdio_parameters(db, home, **environ))) as client:
            return [await said(client, name, arguments) for name, arguments in calls]

    return asyncio.run(ask())


async def said(client: Client, name: str, arguments: Mapping[str, Any]) -> Said:
    result = await client.call_tool(name, dict(arguments))
    (content,) = result.content
    return Said(content.text, bool(result.is_error))


@dataclass(frozen=True)
class Running(servers.Running):
    """A server over HTTP."""

    @property
    def url(self) -> str:
        return self.link

    def on(self, host: str) -> str:
        """Its address under another name."""
        return f"{self.url.partition('://')[0]}://{host}:{self.port}/mcp"


@contextmanager
def running(
    db: Path, home: Path, *flags: str, before: str = "", environ: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """`ingero mcp --http`; `before` is Python run ahead of it in the same process."""
    with servers.started(Running, ["mcp", "-d", str(db), *flags], home, environ or {}, before) as server:
        yield server


def context(server: Running, *, client: Path | None = None) -> ssl.SSLContext:
    """Trusts the server's own certificate; with a client's own in one PEM file."""
    return server.tls(client)


def http_client(server: Running, token: str | None = None, **more: Any) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if "verify" not in more:
        more["verify"] = context(server) if server.url.startswith("https") else False
    return httpx2.AsyncClient(headers=headers | more.pop("headers", {}), timeout=60, **more)


async def ask_http(url: str, http: httpx2.AsyncClient, calls: Calls) -> list[Said]:
    async with http, Client(streamable_http_client(url, http_client=http)) as client:
        return [await said(client, name, arguments) for name, arguments in calls]


def post(server: Running, body: bytes | str, token: str | None = None, **more: Any) -> httpx2.Response:
    """One request as it is."""

    async def send() -> httpx2.Response:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **more.pop("headers", {}),
        }
        url = more.pop("url", server.on("localhost"))
        method = more.pop("method", "POST")
        async with http_client(server, token, **more) as http:
            return await http.request(method, url, content=body, headers=headers)

    return asyncio.run(send())


def rpc(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


LIST_TOOLS = rpc("tools/list")
