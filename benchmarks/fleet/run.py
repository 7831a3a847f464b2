"""What a collector with its embedded store can take, and whether anything is lost.

    python -m benchmarks.fleet.run [--nodes 5000] [--rounds 2] [--kills 50] [--write] [feed rate kills day]

feed   NODES agents, each with eight GPUs and eight ranks, send ROUNDS rounds as fast as it goes
rate   the same at the rate of real agents, a round every ten seconds
kills  a few nodes, while the collector is killed again and again
day    a day of NODES nodes is made inside the store, and the page is asked over it: gigabytes of disk

A third of the answers are cut off. Parts can be run one by one: --write renews theirs in docs/fleet.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Section
from benchmarks.fleet.feeding import SECRET, Fed, feed, health, packed
from benchmarks.machine import Moment, moment
from benchmarks.page import with_section
from ingero.fleet.push import otlp
from ingero.model.fleet import ROUND_S

PARTS = ("feed", "rate", "kills", "day")
TITLE = "What a collector takes"
PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"
KEPT = Path(__file__).with_name("measured.json")  # by part: they are rarely run together
AT_ONCE = 1024  # requests under way
KILLED_NODES = 20
INGERO = Path(sys.executable).with_name("ingero")
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def collector(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    environ = {**os.environ, "HOME": str(folder)}
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_bytes(SECRET)
    store, listen = f"chdb://{folder}/db", f"127.0.0.1:{port}"
    command = [str(INGERO), "fleet", "serve", "--no-tls", "--listen", listen, "--store", store]
    process = subprocess.Popen(
        [*command, "--node-secret", str(secret)], stderr=subprocess.PIPE, text=True, env=environ
    )
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
            break
    else:
        raise RuntimeError("the collector did not start")
    threading.Thread(target=process.stderr.read, daemon=True).start()
    try:
        yield process, int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def apart(program: str, *arguments: str) -> str:
    """In a process of its own: the engine is there once in each."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.fleet.{program}", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def feeding(nodes: int, rounds: int, real_rate: bool) -> list[Figure]:
    fed, memory = Fed(), []
    per_s = nodes / ROUND_S if real_rate else None
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with collector(folder) as (process, port):
            began, used = 0.0, 0.0
            for number in range(1, rounds + 1):
                at_ns = time.time_ns()
                work = [(node, number, packed(node, number, at_ns + node)) for node in range(nodes)]
                start, before = time.perf_counter(), cpu_s(process.pid)
                asyncio.run(feed(port, work, AT_ONCE, 1 / 3, fed, per_s))
                began, used = began + time.perf_counter() - start, used + cpu_s(process.pid) - before
                memory.append(memory_mb(process.pid))
                print(f"  round {number}: {memory[-1]:.0f} MB, {len(fed.taken):,} taken", flush=True)
        stored = json.loads(apart("stored", str(folder / "db")))
    batches = nodes * rounds
    assert stored["node_rounds"] == {"n": batches, "u": batches}, "a batch was lost or stored twice"
    assert stored["job_rounds"]["n"] == stored["gpu_rounds"]["n"] == 8 * batches
    once = f"{batches:,} of {batches:,}, with {fed.cut:,} answers cut off"
    grown = f"{', '.join(f'{each:.0f}' for each in memory)} MB after each round of {nodes:,}"
    if real_rate:
        return _at_rate(fed, nodes, batches, began, used, once, grown)
    return [
        *_sizes(),
        Figure(
            "requests a core of the collector takes", f"{fed.requests / used:.0f} a second, copies counted"
        ),
        Figure("rows a core of it stores", f"{batches * 17 / used:,.0f} a second"),
        Figure("batches stored once", once),
        Figure("a batch on disk, before large merges", f"{stored['bytes'] / batches:.0f} bytes"),
        Figure("memory, engine included", grown),
    ]


def _sizes() -> list[Figure]:
    plain = sum(len(otlp.metrics(health(node, 1, time.time_ns()))) for node in range(50)) / 50
    small = sum(len(packed(node, 1, time.time_ns())) for node in range(50)) / 50
    text = f"{plain:,.0f} bytes, {small:,.0f} packed; {small * 8640 / 2**20:.1f} MiB a node and day"
    return [Figure("a round of a node with 8 GPUs and 8 ranks", text)]


def _at_rate(
    fed: Fed, nodes: int, batches: int, took: float, used: float, once: str, grown: str
) -> list[Figure]:
    who, slow = f"{nodes:,} agents, {nodes / ROUND_S:.0f} rounds a second", sorted(fed.latencies_s)
    middle, late = slow[len(slow) // 2], slow[len(slow) * 99 // 100]
    taken = f"{batches / took:.0f} a second; at worst {fed.longest_behind_s:.1f} s behind"
    return [
        Figure(f"{who}: taken", taken),
        Figure(f"{who}: the collector's part of one core", f"{used / took:.0%}"),
        Figure(f"{who}: answers", f"{middle:.2f} s in the median, 99 of 100 within {late:.2f} s"),
        Figure(f"{who}: batches stored once", once),
        Figure(f"{who}: memory", grown),
    ]


def killing(kills: int) -> list[Figure]:
    chance = random.Random(11)
    fed, port = Fed(), 0
    bodies: dict[tuple[int, int], bytes] = {}  # as in a spool: what is sent again is the same to the byte
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for life in range(kills + 1):
            with collector(folder, port) as (process, port):
                at_ns = time.time_ns()
                bodies |= {(node, life): packed(node, life, at_ns + node) for node in range(KILLED_NODES)}
                work = [(*key, body) for key, body in bodies.items() if key not in fed.taken]
                if life < kills:
                    killer = threading.Timer(chance.uniform(0.05, 1.5), process.kill)
                    killer.start()
                    _until_dead(process, port, work, fed)
                    killer.join()
                else:
                    asyncio.run(feed(port, work, 32, 1 / 3, fed))
        stored = json.loads(apart("stored", str(folder / "db")))
    assert stored["node_rounds"] == {"n": len(bodies), "u": len(bodies)}, "a batch was lost or stored twice"
    return [
        Figure(
            f"batches stored once, the collector killed {kills} times",
            f"{len(fed.taken):,} of {len(bodies):,}",
        )
    ]


def _until_dead(
    process: subprocess.Popen[str], port: int, work: list[tuple[int, int, bytes]], fed: Fed
) -> None:
    async def until() -> None:
        task = asyncio.create_task(feed(port, work, 32, 1 / 3, fed))
        while process.poll() is None and not task.done():
            await asyncio.sleep(0.02)
        await asyncio.to_thread(process.wait)
        task.cancel()

    asyncio.run(until())


def day(nodes: int, kept: Path | None, seconds: float) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        found = json.loads(apart("day", str(kept or folder), str(nodes), str(seconds)))
    return [Figure(what.replace("NODES", f"{nodes:,}"), text) for what, text in found.items()]


METHOD = """\
A real `ingero fleet serve` with its embedded store, and a client beside it that sends what so many nodes
would, each with eight GPUs and eight ranks. A third of the answers is not waited for, and those batches are
sent again. What the store holds is counted after the collector has ended. The day is made by statements
inside the store: a round every ten seconds of every node, with one job and one GPU, in the last hour with
eight of each."""
RESOLVES = """\
What one process takes for each second of a core, and whether a batch is lost or stored twice. The client and
whatever else runs here share the cores, so answers are slower than on a machine of the collector's own. A
network, TLS, and a ClickHouse elsewhere are not in it."""


def written(part: str, figures: list[Figure], before: Moment) -> None:
    """Renews one part; the others stay as they were measured."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    when = f"{part}: measured {before.at} on {os.cpu_count()} cores, load average before {before.load1:.1f}"
    known[part] = {"when": when, "figures": [[each.what, each.value] for each in figures]}
    KEPT.write_text(json.dumps(known, indent=1) + "\n")
    show(known)


def show(known: dict[str, Any]) -> None:
    """What is known, on the page."""
    parts = [known[name] for name in PARTS if name in known]
    rows = tuple(Figure(what, value) for each in parts for what, value in each["figures"])
    notes = ("; ".join(each["when"] for each in parts) + ".",)
    section = Section(TITLE, rows, METHOD, RESOLVES, notes)
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), section), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; without: all but day"
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="keep the day here, and go on with one that is there")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no hour of the day after these"
    )
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    work = {
        "feed": lambda: feeding(chosen.nodes, chosen.rounds, real_rate=False),
        "rate": lambda: feeding(chosen.nodes, chosen.rounds, real_rate=True),
        "kills": lambda: killing(chosen.kills),
        "day": lambda: day(chosen.nodes, chosen.folder, chosen.seconds),
    }
    for part in chosen.parts or PARTS[:-1]:
        before = moment()
        figures = work[part]()
        for each in figures:
            print(f"  {each.what:70} {each.value}", flush=True)
        if chosen.write:
            written(part, figures, before)


if __name__ == "__main__":
    main()
