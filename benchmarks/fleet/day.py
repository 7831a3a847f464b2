"""A day of made-up nodes, made inside the store, and the page asked over it: FOLDER NODES [SECONDS].

Every node tells a round every ten seconds: of one job and one GPU, in the last hour of eight of each, as a
training node does. The last hour is made first; none is begun after so many SECONDS, and hours that are
there already are not made again, so a run that was ended goes on.
"""

from __future__ import annotations

import gzip
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
HOURS, ROUNDS, EIGHT = 24, 360, 8  # rounds in an hour; jobs and GPUs of a node in the last hour
WHO = """
    concat('cluster-', toString(n % 4)) AS cluster, concat('gpu-node-', leftPad(toString(n), 5, '0')) AS node,
    fromUnixTimestamp64Nano(toInt64({now_ns})) - toIntervalSecond(10 * (8640 - r)) AS at,
    '00000000000000aa' AS run, r AS number"""
VALUES = {
    "node_rounds": "toDateTime64(at, 3), '1.0', rand() / 4294967295, 0.5, 8, 0, 0.01, 0.1, 0",
    "job_rounds": """
        4000 + k, 'python', '8d1f0c2b9a3e4f57', concat('slurm-', toString(intDiv(n, 16))), n % 16 * 8 + k,
        128, '', '', concat('team-', toString(n % 20)), 'gpu', 3.9 + rand(1) / 4294967295 / 5, 4.0,
        0.7 + rand(2) / 4294967295 / 4,
        map('gpu_wait', toFloat32(7 + rand(3) / 4294967295), 'host_cpu', toFloat32(2))""",
    "gpu_rounds": """
        k, 'NVIDIA H200', concat('GPU-', toString(n)), 0.7 + rand(1) / 4294967295 / 4, 70000000000,
        150000000000, 1.98e9, 500 + rand(2) % 100, 60, 0""",
}


def fill(store: Store, nodes: int, now_ns: int, most_s: float) -> int:
    """The day before `now_ns`, or so many hours of it."""
    until = time.monotonic() + most_s
    for hour in reversed(range(HOURS)):
        if time.monotonic() >= until:
            return HOURS - 1 - hour
        first = hour * ROUNDS
        known = "SELECT count() AS n FROM $node_rounds WHERE number BETWEEN {first:UInt64} AND {last:UInt64}"
        if store.ask(known, first=first, last=first + ROUNDS - 1)[0]["n"] >= nodes * ROUNDS:
            continue
        for table in ("gpu_rounds", "job_rounds", "node_rounds"):  # the last one says that the hour is there
            each = EIGHT if hour == HOURS - 1 and table != "node_rounds" else 1
            many = (
                f"SELECT number % {each} AS k, intDiv(number, {each}) % {nodes} AS n,"
                f" intDiv(number, {each * nodes}) + {first} AS r FROM numbers({nodes * ROUNDS * each})"
            )
            columns, who = ", ".join(COLUMNS[table]), WHO.format(now_ns=now_ns)
            store._command(
                f"INSERT INTO ingero.{table} ({columns}) SELECT {who}, {VALUES[table]} FROM ({many})"
            )
        print(f"hour {hour + 1} of {HOURS}", file=sys.stderr, flush=True)
    return HOURS


def begun_ns(folder: Path) -> int:
    """When the day ends that is made in this folder."""
    kept = folder / "ends"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(str(time.time_ns()))
    return int(kept.read_text())


def main(folder: Path, nodes: int, most_s: float = float("inf")) -> None:
    ends_ns = begun_ns(folder)
    store = Store(Address(folder / "db"))
    hours = fill(store, nodes, ends_ns, most_s)
    whole = "a day" if hours == HOURS else f"the last {hours} h of a day"
    made = store.ask(
        "SELECT sum(bytes_on_disk) AS n, sum(rows) AS r FROM system.parts"
        " WHERE active AND database = 'ingero'"
    )[0]
    store._command("SYSTEM STOP MERGES")  # of what was made just now: they would count as looks
    watch, times, cores = Watch(store, now_ns=lambda: ends_ns), [], []
    for _ in range(LOOKS):
        used = time.process_time()
        watch.look()
        times.append(watch.took_s)
        cores.append(time.process_time() - used)
    assert len(watch.nodes) == nodes
    assert all(each.state == "fine" and each.jobs == EIGHT for each in watch.nodes)
    began = time.perf_counter()
    answer = msgspec.json.encode(filtered(watch.nodes, Filters(), watch.at_ns))
    shown = time.perf_counter() - began
    began = time.perf_counter()
    found = history(store, "cluster-1", "gpu-node-00001", 24.0, ends_ns)
    past = time.perf_counter() - began
    middle, core_s = sorted(times)[LOOKS // 2], sorted(cores)[LOOKS // 2]
    print(
        json.dumps(
            {
                f"{whole} of NODES nodes": f"{made['r'] / 1e6:.0f} million rows, {made['n'] / 2**30:.2f} GiB",
                "a look at all of them, over that": f"{middle:.2f} s in the median,"
                f" {max(times):.2f} s at most, {core_s:.2f} s on a core",
                "the answer the Fleet page asks for": f"{shown:.2f} s, {len(answer) / 2**20:.1f} MiB,"
                f" {len(gzip.compress(answer, 1)) / 2**20:.2f} MiB packed",
                "one node of them over that time": f"{past:.2f} s, {len(found.points)} points",
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:]))
