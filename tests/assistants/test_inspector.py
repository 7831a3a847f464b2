"""The MCP Inspector, a client nobody of ours wrote, gets the same answers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from ingero.serve.mcp.server import TOOLS
from tests.assistants.asking import Running, command, running
from tests.servers import TOKEN, environment


def inspect(inspector: list[str], home: Path, *arguments: str, **environ: str) -> Any:
    done = subprocess.run(
        [*inspector, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        env=environment(home, **environ),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kind(answer: Any) -> str:
    return str(json.loads(answer["content"][0]["text"])["findings"][0]["kind"])


def test_over_stdio(inspector: list[str], incident: Path, home: Path) -> None:
    server = command(incident)
    listed = inspect(inspector, home, *server, "--method", "tools/list", "--strict")
    assert [tool["name"] for tool in listed["tools"]] == list(TOOLS)
    called = ("--method", "tools/call", "--tool-name", "get_findings", "--tool-arg", "limit=1")
    assert kind(inspect(inspector, home, *server, *called)) == "cpu-contention"
    prompts = inspect(inspector, home, *server, "--method", "prompts/list")
    assert [prompt["name"] for prompt in prompts["prompts"]] == ["investigate"]
    schema = inspect(inspector, home, *server, "--method", "resources/read", "--uri", "ingero://schema")
    assert "## thread_time" in schema["contents"][0]["text"]


def over_http(inspector: list[str], server: Running, url: str, *headers: str, **environ: str) -> None:
    more = [part for header in headers for part in ("--header", header)]
    listed = inspect(inspector, server.home, url, "--method", "tools/list", *more, **environ)
    assert [tool["name"] for tool in listed["tools"]] == list(TOOLS)
    called = ("--method", "tools/call", "--tool-name", "get_findings")
    assert kind(inspect(inspector, server.home, url, *called, *more, **environ)) == "cpu-contention"


def test_over_https_with_a_token(inspector: list[str], incident: Path, home: Path) -> None:
    with running(incident, home, "--http", ":0", environ={"INGERO_TOKEN": TOKEN}) as server:
        trust = {"NODE_EXTRA_CA_CERTS": str(server.trusted)}
        over_http(inspector, server, server.on("localhost"), f"Authorization: Bearer {TOKEN}", **trust)


def test_over_plain_http_on_this_machine(inspector: list[str], incident: Path, home: Path) -> None:
    with running(incident, home, "--http", "127.0.0.1:0", "--no-tls") as server:
        over_http(inspector, server, server.on("127.0.0.1"))
