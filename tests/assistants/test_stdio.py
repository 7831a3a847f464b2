"""Over standard input and output, asked by the reference client."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client

from ingero.detectors.unwatched import DETECTORS as UNWATCHED
from ingero.serve.mcp.server import TOOLS
from tests.assistants.asking import EIGHT_KB, ask_stdio, command, stdio_parameters
from tests.servers import environment

ELSEWHERE = {"get_check", "get_fleet_status", "get_node_history"}  # a collector is asked in tests/fleet
EVERY_TOOL = [
    (name, {"query": "SELECT * FROM events"} if name == "run_sql" else {})
    for name in TOOLS
    if name not in ELSEWHERE
]
DESCRIBED_BYTES = 25_000
SPECIFIED = (
    "get_check get_trace_stats get_causal_chains get_stacks graph_lifecycle graph_frequency run_demo run_sql"
)


def test_the_tools_the_prompt_and_the_resources_are_offered(incident: Path, home: Path) -> None:
    async def ask() -> None:
        async with Client(stdio_client(stdio_parameters(incident, home))) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == list(TOOLS)
            assert {*SPECIFIED.split(), "query_fleet"} <= set(TOOLS)
            # An assistant carries all of them through a whole conversation.
            assert sum(len(tool.model_dump_json(exclude_none=True)) for tool in tools) < DESCRIBED_BYTES
            assert all(
                tool.description and tool.annotations and tool.annotations.read_only_hint for tool in tools
            )
            (prompt,) = (await client.list_prompts()).prompts
            assert prompt.name == "investigate"
            text = (
                (await client.get_prompt("investigate", {"problem": "slow since 3 am"}))
                .messages[0]
                .content.text
            )
            assert "«slow since 3 am»" in text
            assert "get_causal_chains" in text
            uris = [str(each.uri) for each in (await client.list_resources()).resources]
            assert uris == ["ingero://findings", "ingero://schema", "ingero://kinds"]
            read = [(await client.read_resource(uri)).contents[0].text for uri in uris]
            assert "cpu-contention" in read[0]
            assert "## thread_time" in read[1]
            found, _, others = read[2].partition("What nobody looks for yet:")
            assert "- nccl-hang:" in found
            assert not [kind for kind in UNWATCHED if f"- {kind}:" in found or f"- {kind}:" not in others]

    asyncio.run(ask())


def test_a_client_of_the_protocol_before_is_answered_too(incident: Path, home: Path) -> None:
    async def ask() -> None:
        async with (
            stdio_client(stdio_parameters(incident, home)) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            result = await session.call_tool("get_findings", {})
            assert "cpu-contention" in result.content[0].text

    asyncio.run(ask())


def test_every_answer_is_below_eight_kilobytes_by_default(incident: Path, home: Path) -> None:
    for (name, _), answer in zip(EVERY_TOOL, ask_stdio(incident, home, EVERY_TOOL), strict=True):
        assert not answer.failed, (name, answer.text)
        assert len(answer.text.encode()) < EIGHT_KB, name
        assert answer.value["answer"], name


def test_what_was_left_out_is_said_and_more_can_be_asked_for(incident: Path, home: Path) -> None:
    query = {"query": "SELECT * FROM events", "limit": 200}
    brief, full = ask_stdio(incident, home, [("run_sql", query), ("run_sql", query | {"detail": "full"})])
    assert brief.value["left_out"]["rows"] + len(brief.value["rows"]) == 200
    assert len(full.value["rows"]) > len(brief.value["rows"])
    assert EIGHT_KB < len(full.text.encode()) < 60_000


def test_losses_and_what_was_not_watched_are_part_of_a_diagnosis(incident: Path, home: Path) -> None:
    for answer in ask_stdio(incident, home, [(name, {}) for name in ("get_findings", "get_causal_chains")]):
        assert answer.value["lost"] == "nothing"
        assert any(line.startswith("gpu-throttled") for line in answer.value["not_watched"])


def test_run_demo_does_not_touch_the_recording(incident: Path, home: Path) -> None:
    before = incident.read_bytes()
    demo, findings = ask_stdio(
        incident, home, [("run_demo", {"scenario": "gpu-steal"}), ("get_findings", {})]
    )
    assert demo.value["chains"][0]["kind"] == "gpu-shared"
    assert findings.value["findings"][0]["kind"] == "cpu-contention"
    assert incident.read_bytes() == before
    assert list(home.iterdir()) == []


def test_without_a_recording_it_answers_what_to_do(home: Path) -> None:
    (answer,) = ask_stdio(home / "none.db", home, [("get_findings", {})])
    assert answer.failed
    assert "there is no database" in answer.text
    assert "ingero trace" in answer.text


def test_a_fleet_without_nodes_says_so(incident: Path, home: Path) -> None:
    (answer,) = ask_stdio(incident, home, [("query_fleet", {"action": "chains", "since": "5m"})])
    assert not answer.failed
    assert "no nodes are configured" in answer.value["answer"]


def test_the_machine_can_be_checked(incident: Path, home: Path) -> None:
    (answer,) = ask_stdio(incident, home, [("get_check", {})])
    assert not answer.failed
    assert len(answer.text.encode()) < EIGHT_KB
    assert {each["status"] for each in answer.value["checks"]} <= {"failed", "warning"}


def test_it_ends_when_the_client_goes_away(incident: Path, home: Path) -> None:
    done = subprocess.run(
        command(incident), input="", capture_output=True, text=True, timeout=60, env=environment(home)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_it_waits(number: signal.Signals, incident: Path, home: Path) -> None:
    server = subprocess.Popen(
        command(incident), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(home), text=True
    )
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}) + "\n")
        server.stdin.flush()
        assert server.stdout.readline()
        server.send_signal(number)
        assert server.wait(30) == -number


@pytest.mark.parametrize("package", ["mcp", "mcp_types", "pydantic"])
def test_a_missing_package_is_one_line_and_a_hint(package: str, incident: Path, home: Path) -> None:
    script = (
        f"import sys; sys.modules[{package!r}] = None; from ingero.serve.cli.main import main;"
        f" sys.exit(main(['mcp', '-d', {str(incident)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(home),
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith(
        "error: the MCP server needs packages that are not installed"
    )
    assert done.stderr.splitlines()[1:] == ["hint: Install them: pip install 'ingero[mcp]'"]
