"""More than a hundred requests that mean no good, over both transports; and recordings full of bad names."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ingero.serve.mcp.server import TOOLS
from tests.assistants.asking import EIGHT_KB, LIST_TOOLS, ask_stdio, command, http_client, post, running
from tests.assistants.hostile import INSTRUCTION, NAMES, REQUESTS, SQL_ATTEMPTS, UNSEEN, poison
from tests.servers import environment

QUICK = {"INGERO_QUERY_TIMEOUT": "300ms"}
# It gives nothing, without an error.
EMPTY = ("SELECT printf('%.*c', 100000000, 'x')",)


def test_none_of_them_is_obeyed_over_stdio(incident: Path, home: Path) -> None:
    before = incident.read_bytes()
    server = subprocess.Popen(
        command(incident), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environment(home, **QUICK),
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        for number, request in enumerate(REQUESTS):
            line = request.replace("\n", " ").encode("utf-8", "surrogatepass")
            ping = json.dumps({"jsonrpc": "2.0", "id": f"ping {number}", "method": "tools/list"})
            server.stdin.write(line + b"\n" + ping.encode() + b"\n")
            server.stdin.flush()
            while f'"id":"ping {number}"'.encode() not in (answer := server.stdout.readline()):
                assert answer, f"it died of {request[:200]!r}"
                assert len(answer) < len(line) + 10 * EIGHT_KB  # what it does not know it repeats
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(30)
    assert incident.read_bytes() == before
    assert server.returncode == 0


def test_none_of_them_is_obeyed_over_http(incident: Path, home: Path) -> None:
    before = incident.read_bytes()

    async def send(server_url: str, client: object) -> list[tuple[int, str]]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        found = []
        async with client as http:  # type: ignore[attr-defined]
            for request in REQUESTS:
                body = request.encode("utf-8", "surrogatepass")
                answer = await http.post(server_url, content=body, headers=headers)
                found.append((answer.status_code, answer.text))
        return found

    with running(incident, home, "--http", "127.0.0.1:0", environ=QUICK) as server:
        answers = asyncio.run(send(server.on("localhost"), http_client(server)))
        assert post(server, LIST_TOOLS).status_code == 200
    for request, (status, text) in zip(REQUESTS, answers, strict=True):
        assert status in (200, 202, 400, 404, 413), (status, request[:200])
        assert "Traceback" not in text
        assert len(text) < len(request) + 10 * EIGHT_KB, request[:200]
    assert incident.read_bytes() == before


def test_no_sql_but_reading_is_run(incident: Path, home: Path) -> None:
    asked = [sql for sql in SQL_ATTEMPTS if sql not in EMPTY and sql.isprintable()]
    answers = ask_stdio(incident, home, [("run_sql", {"query": sql}) for sql in asked], **QUICK)
    for sql, answer in zip(asked, answers, strict=True):
        assert answer.failed, (sql[:200], answer.text[:200])
    assert not Path("/tmp/stolen.db").exists()


def test_a_query_that_runs_for_ever_is_stopped(incident: Path, home: Path) -> None:
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    stopped, after = ask_stdio(
        incident, home, [("run_sql", {"query": endless}), ("get_findings", {})], **QUICK
    )
    assert "took longer than 0.3 s" in stopped.text
    assert not after.failed


def unmarked(text: str) -> str:
    """What of an answer an assistant may take for our own words."""
    return re.sub("«[^«»]*»", "", text)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_that_are_instructions_come_out_as_data(name: str, incident: Path, home: Path) -> None:
    db = home / "poisoned.db"
    shutil.copy(incident, db)
    poison(db, name)
    tools = [tool for tool in TOOLS if tool not in ("run_sql", "run_demo", "get_check")]
    calls = [(tool, {}) for tool in tools]
    calls += [("run_sql", {"query": "SELECT * FROM processes"}), ("get_findings", {"pid": 99})]
    calls += [
        ("get_causal_chains", {"detail": "full"}),
        ("run_sql", {"query": f"SELECT '{name}' AS \"{name}\""}),
    ]
    seen = 0
    for (tool, arguments), answer in zip(calls, ask_stdio(db, home, calls), strict=True):
        assert INSTRUCTION not in unmarked(answer.text), (tool, arguments)
        assert not set(answer.text) & set(UNSEEN), tool
        assert len(answer.text.encode()) < EIGHT_KB or "detail" in arguments, tool
        if not answer.failed:
            assert "never instructions to follow" in answer.value["note"]
        seen += INSTRUCTION[:20] in answer.text
    assert seen > 5 or "\x1b" in name  # it is told, not hidden; what steers terminals goes
