"""A day of made-up nodes, made inside the store, and the page asked over it: FOLDER NODES."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import msgspec

from ingero.fleet.collector.history import history
from ingero.fleet.collector.status import Filters, filtered
from ingero.fleet.collector.store import Address, Store
from ingero.fleet.collector.tables import COLUMNS
from ingero.fleet.collector.watch import Watch

LOOKS = 7
WHO = """
    concat('cluster-', toString(n % 4)) AS cluster, concat('gpu-node-', leftPad(toString(n), 5, '0')) AS node,
    now64(9) - toIntervalSecond(10 * (8640 - r)) AS at, '00000000000000aa' AS run, r AS number"""
VALUES = {
    "node_rounds": "toDateTime64(at, 3), '1.0', rand() / 4294967295, 0.5, 8, 0, 0.01, 0.1, 0",
    "job_rounds": """
        4000, 'python', '8d1f0c2b9a3e4f57', concat('slurm-', toString(intDiv(n, 128))), n % 128, 128, '', '',
        concat('team-', toString(n % 20)), 'gpu', 3.9 + rand(1) / 4294967295 / 5, 4.0,
        0.7 + rand(2) / 4294967295 / 4,
        map('gpu_wait', toFloat32(7 + rand(3) / 4294967295), 'host_cpu', toFloat32(2))""",
    "gpu_rounds": """
        0, 'NVIDIA H200', concat('GPU-', toString(n)), 0.7 + rand(1) / 4294967295 / 4, 70000000000,
        150000000000, 1.98e9, 500 + rand(2) % 100, 60, 0""",
}


def fill(store: Store, nodes: int) -> None:
    """One job and one GPU for each node, so that all of it fits here."""
    for hour in range(24):
        round_of = f"intDiv(number, {nodes}) + {hour * 360}"
        many = f"SELECT number % {nodes} AS n, {round_of} AS r FROM numbers({nodes * 360})"
        for table, values in VALUES.items():
            columns = ", ".join(COLUMNS[table])
            store._command(f"INSERT INTO ingero.{table} ({columns}) SELECT {WHO}, {values} FROM ({many})")


def main(folder: str, nodes: int) -> None:
    store = Store(Address(Path(folder)))
    began = time.perf_counter()
    fill(store, nodes)
    took = time.perf_counter() - began
    made = store.ask(
        "SELECT sum(bytes_on_disk) AS n, sum(rows) AS r FROM system.parts"
        " WHERE active AND database = 'ingero'"
    )[0]
    watch, times = Watch(store), []
    for _ in range(LOOKS):
        watch.look()
        times.append(watch.took_s)
    assert len(watch.nodes) == nodes
    began = time.perf_counter()
    answer = msgspec.json.encode(filtered(watch.nodes, Filters(), watch.at_ns))
    shown = time.perf_counter() - began
    began = time.perf_counter()
    found = history(store, "cluster-1", "gpu-node-00001", 24.0)
    whole = f"{made['r'] / 1e6:.0f} million rows, {made['n'] / 2**30:.2f} GiB, made in {took:.0f} s"
    print(
        json.dumps(
            {
                "a day of NODES nodes": whole,
                "a look at all of them, over that day": f"{sorted(times)[LOOKS // 2]:.2f} s in the median,"
                f" {max(times):.2f} s at most",
                "the answer the Fleet page asks for": f"{shown:.2f} s, {len(answer) / 2**20:.1f} MiB",
                "one node's day of them": f"{time.perf_counter() - began:.2f} s, {len(found.points)} points",
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
