"""A store that is a server: everything goes through its HTTP interface, as to a real ClickHouse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ingero.fleet.push import otlp
from tests.contracts.tree import ROOT
from tests.ebpf.real_runs import until
from tests.fleet.serving import Collector, collector, nodes, stored
from tests.fleet.test_store import fresh
from tests.unit.fleet.rounds import finding

USER, PASSWORD = "fleet", "a-password-of-the-tests"


@contextmanager
def clickhouse(home: Path, port: int = 0) -> Iterator[int]:
    """The port it listens on. Its folder is where a collector's own store would be."""
    words = [
        sys.executable,
        "-m",
        "tests.fleet.clickhouse_server",
        str(home / "db"),
        str(port),
        USER,
        PASSWORD,
    ]
    running = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        yield int(running.stdout.readline())
    finally:
        running.terminate()
        running.wait(20)
        running.stdout.close()


@contextmanager
def told_to(home: Path, port: int, password: str = PASSWORD) -> Iterator[Collector]:
    words = ("--store", f"clickhouse://{USER}@127.0.0.1:{port}/ingero")
    with collector(home, *words, INGERO_STORE_PASSWORD=password) as running:
        yield running


def post(running: Collector, node: str, number: int) -> int:
    run = f"{number:016x}"
    return running.post(otlp.metrics(fresh(node, number, run=run)), running.token_of("*"))[0]


def test_what_nodes_tell_is_stored_once_and_answered_from_a_server(home: Path) -> None:
    with clickhouse(home) as port, told_to(home, port) as running:
        for _ in range(3):
            assert [post(running, f"n{at}", 1) for at in range(5)] == [200] * 5
        sick = otlp.logs(
            fresh("n3", findings=[finding(severity="CRITICAL", title="it's \\ 'quoted'\n\ttext")])
        )
        assert sick is not None
        assert running.post(sick, running.token_of("n3"), path="/v1/logs")[0] == 200
        until(lambda: [each["state"] for each in nodes(running)][:1] == ["critical"], "it was seen", 60)
        (worst, *others) = nodes(running)
        assert worst["node"] == "n3"
        assert {each["node"] for each in others} == {"n0", "n1", "n2", "n4"}
        assert worst["job_names"] == ["slurm-7"]
        assert worst["pace_share"] == pytest.approx(0.9)
        status, text = running.get(f"/api/v1/fleet/node?node=n3&cluster={worst['cluster']}")
        assert status == 200
        past = json.loads(text)
        assert past["points"]
        assert past["findings"][0]["title"] == worst["findings"][0]["title"]
    found = stored(home)
    assert {node for node, _, _ in found} == {f"n{at}" for at in range(5)}
    assert set(found.values()) == {1}


def test_while_the_server_is_away_nothing_is_taken_and_afterwards_it_is(home: Path) -> None:
    with ExitStack() as stack:
        with clickhouse(home) as port:
            running = stack.enter_context(told_to(home, port))
            assert post(running, "n1", 1) == 200
        assert post(running, "n1", 2) == 503
        with clickhouse(home, port):
            assert post(running, "n1", 2) == 200
            until(lambda: len(nodes(running)) == 1, "it looked again", 60)
            stack.close()
    assert sorted(number for _, _, number in stored(home)) == [1, 2]


def test_a_wrong_password_is_told_at_the_start(home: Path) -> None:
    with (
        clickhouse(home) as port,
        pytest.raises(
            AssertionError, match=r"the store clickhouse://127\.0\.0\.1:\d+/ingero cannot be opened"
        ),
        told_to(home, port, "another"),
    ):
        pass
