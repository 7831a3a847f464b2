"""The collector's store over the tables of a cluster, in an engine that has one shard, itself: FOLDER.

The embedded engine makes and asks Distributed tables of its configuration. It has no queue of statements
for a cluster, and its replicated tables take no rows, so those two words are taken from the statements.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chdb
import clickhouse_connect

from ingero.fleet.collector import questions, tables
from ingero.fleet.collector import store as stores
from ingero.fleet.collector.history import history
from ingero.fleet.collector.store import Address, Store
from ingero.fleet.collector.watch import Watch
from ingero.fleet.limits import ROUNDS
from tests.fleet.test_store import fresh, put, slow_rank
from tests.unit.fleet.rounds import finding

CONFIG = """\
<clickhouse><tcp_port>9000</tcp_port><remote_servers><main><shard>
<replica><host>127.0.0.1</host><port>9000</port></replica></shard></main></remote_servers></clickhouse>"""
KEEPER = re.compile(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?")


def of_one_shard(database: str, days: int, cluster: str | None = None) -> list[str]:
    made = tables.statements(database, days, cluster)
    return [KEEPER.sub(r"\1(", each.replace(f"ON CLUSTER {cluster}", "")) for each in made]


def main(folder: Path) -> None:
    (folder / "config.xml").write_text(CONFIG)

    def client(address: Address, environ: Mapping[str, str]) -> Any:
        settings = {"insert_distributed_sync": 1, "max_threads": 2}  # as store.py has it for a cluster
        return clickhouse_connect.get_client(dsn=f"chdb://{folder}/db", settings=settings)

    connect = chdb.connect  # the client hands no configuration on to the engine
    chdb.connect = lambda where: connect(f"file:{where}?config-file={folder}/config.xml")
    stores._client, stores.statements = client, of_one_shard
    store = Store(Address(None, "127.0.0.1", 9000, cluster="main"))
    told = [fresh("n1"), fresh("n2")]
    for _ in range(3):
        put(store, *told)
    put(store, fresh("n1", findings=[finding(severity="CRITICAL")]), signal="logs")
    watch = Watch(store)
    for number in range(2, ROUNDS + 2):
        slow_rank(store, number, 5)
        watch.look()
    engines = store.ask(
        "SELECT name, engine FROM system.tables WHERE database = {d:String}", d=store.address.database
    )
    once = "SELECT count() AS n, uniqExact(node, run, number) AS u FROM $node_rounds FINAL"
    print(
        json.dumps(
            {
                "engines": {row["name"]: row["engine"] for row in engines},
                "stored": store.ask(once)[0],
                "states": {each.node: each.state for each in watch.nodes},
                "points": len(history(store, "c1", "n5", 1.0, time.time_ns()).points),
                "again": [each.node for _, each in questions.straggling(store)],
            }
        )
    )
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
