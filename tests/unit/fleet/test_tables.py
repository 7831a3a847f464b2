"""The store's tables: the same for one machine and a cluster, and every row has a place."""

from __future__ import annotations

import re

import pytest

from ingero.errors import UsageError
from ingero.fleet.collector.store import parse
from ingero.fleet.collector.tables import COLUMNS, TABLES, statements


def columns(statement: str) -> list[str]:
    inside = statement.partition("(\n")[2].partition("\n)\nENGINE")[0]
    return [line.split()[0] for line in inside.splitlines()]


def test_every_column_that_is_written_is_in_its_table() -> None:
    made = {
        found[1]: columns(each)
        for each in statements("ingero", 14)
        if (found := re.match(r"CREATE TABLE IF NOT EXISTS ingero\.(\w+)", each))
    }
    assert set(made) == set(TABLES)
    for table, written in COLUMNS.items():
        assert set(written) == set(made[table])


def test_on_one_machine_there_is_nothing_of_a_cluster() -> None:
    text = "\n".join(statements("ingero", 14))
    assert not re.search(r"ON CLUSTER|Replicated|Distributed|_shard|\$", text)
    assert "ENGINE = ReplacingMergeTree()" in text
    assert text.count("INTERVAL 14 DAY") == 4


def test_in_a_cluster_every_table_is_replicated_and_has_one_over_its_shards() -> None:
    made = statements("fleet", 30, "main")
    text = "\n".join(made)
    assert "$" not in text
    assert all("ON CLUSTER main" in each for each in made)
    keeper = "'/clickhouse/tables/{shard}/fleet/{table}', '{replica}'"
    assert f"ReplicatedReplacingMergeTree({keeper})" in text
    assert f"ReplicatedReplacingMergeTree({keeper}, told)" in text
    for table in TABLES:
        assert f"ENGINE = Distributed(main, fleet, {table}_shard, cityHash64(cluster, node))" in text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("chdb:///var/lib/x", "chdb:///var/lib/x"),
        ("clickhouse://u@ch:9443/db?cluster=main", "clickhouse://ch:9443/db"),
        ("clickhouse://127.0.0.1", "clickhouse://127.0.0.1:8123/ingero"),
        ("clickhouse://ch", "clickhouse://ch:8443/ingero"),
    ],
)
def test_a_store_means_what_it_says(text: str, meant: str) -> None:
    assert parse(text).text == meant


def test_beyond_this_machine_it_is_encrypted() -> None:
    assert parse("clickhouse://ch").secure
    assert not parse("clickhouse://localhost").secure


@pytest.mark.parametrize(
    "text",
    ["", "x", "chdb://host/x", "clickhouse://", "clickhouse://u:secret@ch", "clickhouse://ch/a-b",
     "clickhouse://ch?cluster=a;b", "clickhouse://ch?x=1"],
)  # fmt: skip
def test_a_wrong_store_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)
