"""Servers started as users start them, and clients that ask them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

TOKEN = "an-example-token-of-the-tests-0123456789"
EIGHT_KB = 8192
Calls = Sequence[tuple[str, Mapping[str, Any]]]


def environment(home: Path, **more: str) -> dict[str, str]:
    """A user with nothing configured."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("INGERO_", "SUDO_", "XDG_"))
    }
    return kept | {"HOME": str(home)} | more


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
    return [sys.executable, "-m", "ingero", "mcp", "-d", str(db), *more]


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
class Running:
    """A server over HTTP."""

    url: str
    home: Path
    process: subprocess.Popen[str]
    said: list[str]

    @property
    def port(self) -> int:
        return int(re.search(r":(\d+)/mcp$", self.url)[1])  # type: ignore[index]

    def on(self, host: str) -> str:
        """Its address under another name."""
        return f"{self.url.partition('://')[0]}://{host}:{self.port}/mcp"

    @property
    def trusted(self) -> Path:
        return self.home / ".ingero/server/certificate.pem"

    @property
    def own_token(self) -> str:
        return (self.home / ".ingero/server/token").read_text().strip()

    def alive(self) -> bool:
        return self.process.poll() is None


@contextmanager
def running(
    db: Path, home: Path, *flags: str, before: str = "", environ: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """`ingero mcp --http`; `before` is Python run ahead of it in the same process."""
    arguments = ["mcp", "-d", str(db), *flags]
    script = f"import sys; {before}\nfrom ingero.serve.cli.main import main; sys.exit(main({arguments!r}))"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home, **(environ or {})),
        cwd=home,
    )
    lines: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.rstrip())
            if found := re.match(r"ingero mcp: (\S+)", line):
                yield Running(found[1], home, process, lines)
                break
        else:
            raise AssertionError("\n".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=20)
        lines += rest.splitlines()


def context(server: Running, *, client: Path | None = None) -> ssl.SSLContext:
    """Trusts the server's own certificate; with a client's own in one PEM file."""
    made = ssl.create_default_context(cafile=str(server.trusted))
    if client is not None:
        made.load_cert_chain(client)
    return made


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
