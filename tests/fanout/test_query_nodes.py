"""One statement to many nodes: whose row it is, whose clock, who did not answer."""

from __future__ import annotations

import csv
import io

import pytest

from tests.fanout.conftest import AHEAD_NS, MS, Ask, Cluster

# As printed in the article about tracing a stall across nodes.
PRINTED = """SELECT node, source, count(*) as cnt, avg(duration)/1000 as avg_us
     FROM events GROUP BY node, source"""


def test_the_printed_query_works_as_it_stands(cluster: Cluster, ask: Ask) -> None:
    said = ask("query", "--nodes", cluster.listed, PRINTED)
    assert said.code == 0, said.err
    head, _, *rows = said.out.splitlines()
    assert head.split() == ["node", "source", "cnt", "avg_us"]
    assert [row.split() for row in rows[:6] if row.split()[1] == "1"] == [
        ["gpu-node-01", "1", "9", "2"], ["gpu-node-02", "1", "3", "9"], ["gpu-node-03", "1", "6", "4"],
    ]  # fmt: skip
    assert said.out.rstrip().endswith("6 rows from 3 node(s)")


def test_rows_have_their_node_first_though_nobody_asked_for_it(cluster: Cluster, ask: Ask) -> None:
    said = ask(
        "query",
        "--nodes",
        cluster.listed,
        "--format",
        "csv",
        "SELECT count(*) AS n, pid FROM calls GROUP BY 2",
    )
    assert list(csv.reader(io.StringIO(said.out))) == [
        ["node", "n", "pid"],
        ["gpu-node-01", "9", "100"], ["gpu-node-02", "3", "100"], ["gpu-node-03", "6", "100"],
    ]  # fmt: skip


def test_a_column_called_node_that_is_something_else_is_kept(cluster: Cluster, ask: Ask) -> None:
    said = ask("query", "--json", "--nodes", cluster.listed, "SELECT 7 AS node, op FROM calls LIMIT 1")
    assert said.json["columns"] == ["node", "node_2", "op"]
    assert said.json["rows"][0] == {"node": "gpu-node-01", "node_2": 7, "op": "cudaLaunchKernel"}


def test_times_of_a_node_whose_clock_is_ahead_are_corrected_and_that_is_said(
    cluster: Cluster, ask: Ask
) -> None:
    sql = "SELECT min(timestamp) AS timestamp, min(timestamp) AS untouched FROM events WHERE source = 1"
    answer = ask("query", "--json", "--nodes", cluster.listed, sql).json
    assert answer["corrected"] == ["timestamp"]
    clocks = [each["clock"] for each in answer["fleet"]["nodes"]]
    assert abs(clocks[1]["offset_ns"] - AHEAD_NS) <= clocks[1]["error_ns"] < 40 * MS
    assert all(clock["exchanges"] >= 3 for clock in clocks)
    row = answer["rows"][1]
    assert row["timestamp"] - row["untouched"] == clocks[1]["shift_ns"] == -clocks[1]["offset_ns"]
    (note,) = [note for note in answer["fleet"]["notes"] if "ahead" in note]
    assert note.startswith("the clock of gpu-node-02 is ")
    assert " ahead of ours (± " in note


def test_a_node_that_is_down_is_named_and_the_others_answers_stand(cluster: Cluster, ask: Ask) -> None:
    nodes = f"127.0.0.1:1,{cluster.listed}"
    said = ask("query", "--nodes", nodes, "SELECT count(*) FROM calls")
    assert said.code == 0
    assert "3 rows from 3 of 4 node(s)" in said.out
    assert "no answer from 127.0.0.1:1 (down): nobody listens there." in said.err
    assert ask("query", "--strict", "--nodes", nodes, "SELECT 1").code == 4
    answer = ask("query", "--json", "--strict", "--nodes", nodes, "SELECT 1")
    assert answer.code == 4
    assert answer.json["fleet"]["partial"]
    assert [each["problem"] for each in answer.json["fleet"]["nodes"]] == ["down", None, None, None]


def test_a_mistake_in_the_sql_is_told_once_and_not_by_every_node(cluster: Cluster, ask: Ask) -> None:
    said = ask("query", "--nodes", cluster.listed, "SELECT absent FROM events")
    assert (said.code, said.out) == (2, "")
    assert said.err.count("no such column: absent") == 1


def test_nodes_of_the_configuration_are_asked_unless_something_local_is_named(
    cluster: Cluster, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGERO_FLEET_NODES", cluster.listed)
    sql = "SELECT count(*) AS n FROM calls"
    assert len(ask("query", "--json", sql).json["rows"]) == 3
    assert ask("query", "--json", "-d", str(cluster.databases[1]), sql).json["rows"] == [{"n": 3}]
    assert ask("query", "--local", sql).code == 1  # there is no recording here
    assert ask("query", "-d", "x.db", "--nodes", "a", sql).code == 2


def test_statistics_of_all_nodes_come_with_their_node(cluster: Cluster, ask: Ask) -> None:
    answer = ask("query", "--json", "--nodes", cluster.listed).json
    assert {(each["node"], each["op"], each["count"]) for each in answer["operations"]} == {
        ("gpu-node-01", "cudaLaunchKernel", 9),
        ("gpu-node-02", "cudaLaunchKernel", 3),
        ("gpu-node-03", "cudaLaunchKernel", 6),
    }
    said = ask("query", "--nodes", cluster.listed, "--op", "cudaLaunchKernel")
    assert "gpu-node-02" in said.out
    assert said.code == 0


def test_rows_are_cut_so_that_every_node_has_a_part(cluster: Cluster, ask: Ask) -> None:
    answer = ask("query", "--json", "--limit", "7", "--nodes", cluster.listed, "SELECT op FROM calls").json
    nodes = [row["node"] for row in answer["rows"]]
    assert [nodes.count(f"gpu-node-0{number}") for number in (1, 2, 3)] == [3, 2, 2]
    assert answer["truncated"]
