"""Counts what a store holds: python -m benchmarks.fleet.stored FOLDER, where no collector runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ingero.fleet.collector.store import Address, Store


def main(folder: str) -> None:
    store = Store(Address(Path(folder)))
    found = {
        table: store.ask(f"SELECT count() AS n, uniqExact(node, run, number) AS u FROM ${table} FINAL")[0]
        for table in ("node_rounds", "job_rounds", "gpu_rounds")
    }
    on_disk = "SELECT sum(bytes_on_disk) AS n FROM system.parts WHERE active AND database = 'ingero'"
    print(json.dumps({**found, "bytes": store.ask(on_disk)[0]["n"]}))


if __name__ == "__main__":
    main(sys.argv[1])
