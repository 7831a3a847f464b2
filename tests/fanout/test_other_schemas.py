"""Nodes of another schema: older ones answer, what cannot be read is named, and the others stand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fanout.conftest import Ask, Cluster
from tests.fleet_nodes import dashboard, record

# As a version wrote it that knew neither its own cost, nor tenants, nor offsets of clocks.
UNKNOWN = ("0009-own-cost", "0011-clock-offsets", "0013-tenants")
BEFORE = (
    "DROP VIEW own_cost",
    "DROP TABLE switch_second",
    "DROP VIEW clock_offsets",
    "DROP TABLE clock_offset",
    f"DELETE FROM migration WHERE name IN {UNKNOWN}",
)


def changed(db: Path, *statements: str) -> Path:
    with sqlite3.connect(db) as connection:
        for each in statements:
            connection.execute(each)
    connection.close()
    return db


NAMES = ("gpu-node-01", "older", "newer", "lacking")  # a view that every version has


@pytest.fixture(scope="module")
def listed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("schemas")
    signed = str(cluster.authority.sign("schemas"))
    words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed)
    later = "INSERT INTO migration (name, applied_ns) VALUES ('9999-of-tomorrow', 1)"
    made = {"older": BEFORE, "newer": (later,), "lacking": ("DROP VIEW nccl_events",)}
    with ExitStack() as servers:
        nodes = [
            servers.enter_context(
                dashboard(
                    changed(record(folder / f"{name}.db", name, (5000,)), *changes), folder / name, *words
                )
            )
            for name, changes in made.items()
        ]
        yield ",".join((cluster.nodes[0], *nodes))


def why(fleet: dict[str, Any]) -> dict[str, str]:
    """Of those that did not answer; which of them, their place says."""
    return {
        name: f"{each['problem']}: {each['why']}"
        for name, each in zip(NAMES, fleet["nodes"], strict=True)
        if not each["answered"]
    }


@pytest.mark.parametrize("command", ["query", "explain"])
def test_a_recording_that_cannot_be_read_is_named_and_the_others_stand(
    listed: str, ask: Ask, command: str
) -> None:
    words = ("SELECT node, duration_ns FROM calls",) if command == "query" else ()
    said = ask(command, "--json", "--strict", "--nodes", listed, *words)
    assert said.code == 4
    missing = why(said.json["fleet"])
    assert set(missing) == {"newer", "lacking"}
    assert "was written by a newer ingero" in missing["newer"]
    assert "is of an older version: it has no nccl_events" in missing["lacking"]
    heard = said.json["rows" if command == "query" else "processes"]
    assert {each["node"] for each in heard} == {"gpu-node-01", "older"}


def test_reduced_are_all_whose_tables_are_there_and_the_newer_one_is_named(listed: str, ask: Ask) -> None:
    """A view is made of the tables, where the rows of all nodes are."""
    said = ask(
        "query", "--json", "--strict", "--reduce", "--nodes", listed,
        "SELECT node, COUNT(*) AS n, SUM(duration_ns) AS ns FROM calls GROUP BY 1",
    )  # fmt: skip
    assert said.code == 4
    missing = why(said.json["fleet"])
    assert set(missing) == {"newer"}
    assert "was written by a newer ingero" in missing["newer"]
    rows = {each["node"]: (each["n"], each["ns"]) for each in said.json["rows"]}
    assert rows == {"gpu-node-01": (9, 18_000), "older": (3, 15_000), "lacking": (3, 15_000)}


@pytest.mark.parametrize("reduced", [(), ("--reduce",)], ids=["each", "reduced"])
def test_what_an_older_version_did_not_record_is_unknown_there(
    listed: str, ask: Ask, reduced: tuple[str, ...]
) -> None:
    sql = "SELECT node, COUNT(*) AS n, COUNT(switches) AS known FROM own_cost GROUP BY 1"
    said = ask("query", "--json", "--nodes", listed, *reduced, sql)
    rows = {each["node"]: each for each in said.json["rows"]}
    assert rows["older"] == {"node": "older", "n": 3, "known": 0}
    assert rows["gpu-node-01"]["n"] == 3
