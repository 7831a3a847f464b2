"""Recordings of many nodes as one database: the same numbers, by one clock."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from ingero.serve.answers.json_schemas import ANSWERS
from ingero.serve.answers.nodes_recordings import tables_of
from tests.builders import EPOCH_NS, SECOND
from tests.fanout.conftest import AHEAD_NS, MS, Ask, Cluster
from tests.fleet_nodes import Authority, dashboard, record


def test_what_is_reduced_means_all_nodes(cluster: Cluster, ask: Ask) -> None:
    sql = (
        "SELECT count(*) AS n, avg(duration) AS mean, count(DISTINCT node) AS m FROM events WHERE source = 1"
    )
    answer = ask("query", "--json", "--reduce", "--nodes", cluster.listed, sql).json
    # 9 calls of 2 us on average, 3 of 9 us, 6 of 4 us
    assert answer["rows"] == [{"n": 18, "mean": 69_000 / 18, "m": 3}]
    top = "SELECT node, duration FROM events WHERE source = 1 ORDER BY duration DESC LIMIT 1"
    assert ask("query", "--json", "--reduce", "--nodes", cluster.listed, top).json["rows"] == [
        {"node": "gpu-node-02", "duration": 9000}
    ]
    assert len(ask("query", "--json", "--nodes", cluster.listed, top).json["rows"]) == 3


def test_only_the_tables_a_statement_reads_are_fetched() -> None:
    assert {"operation_second", "op", "node"} <= tables_of("SELECT op, sum(count) FROM operations GROUP BY 1")
    assert "event" not in tables_of("SELECT op, sum(count) FROM operations GROUP BY 1")
    assert {"event", "collective"} <= tables_of(
        "WITH c AS (SELECT * FROM nccl_events) SELECT count(*) FROM c"
    )


def test_a_mistake_is_found_before_anybody_is_asked(ask: Ask) -> None:
    said = ask("query", "--reduce", "--nodes", "127.0.0.1:1", "SELECT absent FROM events")
    assert said.code == 2
    assert "no such column: absent" in said.err
    assert ask("query", "--reduce", "--nodes", "127.0.0.1:1", "DELETE FROM event").code == 2
    assert ask("query", "--reduce", "SELECT 1").code == 2


def test_a_node_without_its_recording_is_missing_from_the_sum_and_named(cluster: Cluster, ask: Ask) -> None:
    nodes = f"{cluster.nodes[0]},127.0.0.1:1"
    said = ask("query", "--json", "--strict", "--reduce", "--nodes", nodes, "SELECT count(*) AS n FROM calls")
    assert said.code == 4
    assert said.json["rows"] == [{"n": 9}]
    assert said.json["fleet"]["nodes"][1]["problem"] == "down"


def test_merged_nodes_are_by_our_clock(cluster: Cluster, ask: Ask, tmp_path: Path) -> None:
    said = ask("merge", "--json", "--nodes", cluster.listed, "-o", str(tmp_path / "all.db"))
    assert said.code == 0, said.err
    answer = said.json
    assert {part["file"] for part in answer["added"]} == set(cluster.nodes)
    clock = answer["fleet"]["nodes"][1]["clock"]
    assert abs(clock["offset_ns"] - AHEAD_NS) <= clock["error_ns"]
    with closing(sqlite3.connect(tmp_path / "all.db")) as connection:
        found = dict(
            connection.execute("SELECT node, min(timestamp) FROM events WHERE source = 1 GROUP BY 1")
        )
    assert found["gpu-node-02"] == EPOCH_NS + clock["shift_ns"]
    assert found["gpu-node-01"] == EPOCH_NS + answer["fleet"]["nodes"][0]["clock"]["shift_ns"]
    again = ask("merge", "--nodes", cluster.listed, "-o", str(tmp_path / "all.db"))
    assert again.code == 2
    assert "exists" in again.err


def test_what_is_printed_holds_to_its_schema(cluster: Cluster, ask: Ask, tmp_path: Path) -> None:
    nodes = ("--json", "--nodes", cluster.listed)
    printed = {
        "explain-nodes": ask("explain", *nodes),
        "merge-nodes": ask("merge", *nodes, "-o", str(tmp_path / "all.db")),
        "query-nodes": ask("query", *nodes),
        "query-nodes-sql": ask("query", *nodes, "SELECT op FROM events LIMIT 1"),
    }
    for name, said in printed.items():
        msgspec.json.decode(said.out, type=ANSWERS[name][1])


def test_a_timeline_of_all_nodes(cluster: Cluster, ask: Ask, tmp_path: Path) -> None:
    said = ask("export", "--format", "perfetto", "-o", str(tmp_path / "t.json"), "--nodes", cluster.listed)
    assert said.code == 0, said.err
    text = json.dumps(json.loads((tmp_path / "t.json").read_text()))
    assert all(f"gpu-node-0{number}" in text for number in (1, 2, 3))


@pytest.fixture(scope="module")
def long_ago(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose clock is a day behind, with a recording of a minute."""
    folder = tmp_path_factory.mktemp("long")
    signed = str(authority.sign("long"))
    words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed)
    db = record(folder / "a.db", "behind", seconds=60)
    with dashboard(db, folder / "home", *words, ahead_ns=-86_400 * SECOND) as node:
        yield node


def test_a_time_is_meant_by_our_clock_and_asked_by_the_nodes_own(long_ago: str, ask: Ask) -> None:
    """A day behind: what it calls second 10 is second 86,410 here."""
    begin = EPOCH_NS // SECOND + 86_400 + 10
    sql = "SELECT count(*) AS n, min(timestamp) AS first FROM events WHERE source = 1"
    words = ("query", "--json", "--reduce", "--nodes", long_ago, "--from", str(begin), "--to", str(begin + 5))
    (row,) = ask(*words, sql).json["rows"]
    assert 15 <= row["n"] <= 21  # three a second, in whole seconds
    assert abs(row["first"] - begin * SECOND) <= SECOND + 100 * MS
    nothing = ask(
        "query", "--json", "--nodes", long_ago, "--from", "2020-01-01T00:00", "--to", "2020-01-02T00:00"
    )
    assert nothing.code == 0
    assert nothing.json["operations"] == []


def test_a_recording_larger_than_allowed_is_refused_by_the_node(
    long_ago: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGERO_FLEET_MAX_ANSWER", "300k")
    said = ask("query", "--reduce", "--nodes", long_ago, "SELECT count(*) FROM events, operations")
    assert said.code == 1
    assert "larger than 300 KiB" in said.err


def test_a_clock_that_runs_fast_is_pointed_out(authority: Authority, ask: Ask, tmp_path: Path) -> None:
    signed = str(authority.sign("fast"))
    words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed)
    with dashboard(record(tmp_path / "a.db", "fast"), tmp_path / "home", *words, rate=0.5) as node:
        answer = ask("merge", "--json", "--nodes", node, "-o", str(tmp_path / "all.db")).json
    clock = answer["fleet"]["nodes"][0]["clock"]
    assert abs(clock["drift_ppm"] - 500_000) <= clock["drift_error_ppm"]
    if clock["drift_error_ppm"] < 400_000:  # on a machine that is very busy the bound may be wider
        assert any("the clock of fast runs" in note for note in answer["fleet"]["notes"])
