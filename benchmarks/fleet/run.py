"""What a collector with its embedded store can take, and whether anything is lost.

    python -m benchmarks.fleet.run [--nodes 5000] [--rounds N] [--kills 50] [--write] [feed rate kills day]

feed   NODES agents, each with eight GPUs and eight ranks, send two rounds as fast as it goes
rate   the same at the rate of real agents, a round every ten seconds, for two minutes
kills  200 nodes, while the collector is killed again and again
day    a day of NODES nodes is made inside the store, and the page is asked over it: gigabytes of disk

A third of the answers are cut off. Parts can be run one by one: --write renews theirs in docs/fleet.md.
`make bench` runs all of them (benchmarks/collector.py).
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Any

from benchmarks.figures import Figure, Section, at_most
from benchmarks.fleet.feeding import SECRET, Fed, feed, health, packed
from benchmarks.machine import moment
from benchmarks.page import with_section
from benchmarks.run import show
from ingero.fleet.push import otlp
from ingero.model.fleet import ROUND_S

TITLE = "What a collector takes"
PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"
KEPT = Path(__file__).with_name("measured.json")  # by part: they are rarely run together
AT_ONCE = 1024  # requests under way
KILLED_NODES = 200  # fewer leave the collector with nothing to do when it is killed
MOST_BEHIND_S = ROUND_S  # a node tells the next round by then
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


@dataclass(frozen=True)
class Extent:
    """How much of everything."""

    nodes: int = 5000
    feed_rounds: int = 2
    rate_rounds: int = 12
    kills: int = 50
    killed_nodes: int = KILLED_NODES
    day_folder: Path | None = None
    day_s: float = float("inf")


def rounds_of(nodes: int, number: int) -> list[tuple[int, int, bytes]]:
    at_ns = time.time_ns()
    return [(node, number, packed(node, number, at_ns + node)) for node in range(nodes)]


def feeding(extent: Extent) -> list[Figure]:
    fed, memory, used, nodes = Fed(), [], 0.0, extent.nodes
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with collector(folder) as (process, port):
            for number in range(1, extent.feed_rounds + 1):
                work = rounds_of(nodes, number)
                before = cpu_s(process.pid)
                asyncio.run(feed(port, work, AT_ONCE, 1 / 3, fed))
                used += cpu_s(process.pid) - before
                memory.append(memory_mb(process.pid))
                print(f"  round {number}: {memory[-1]:.0f} MB, {len(fed.taken):,} taken", flush=True)
        stored = _stored_once(folder, batches := nodes * extent.feed_rounds)
    return [
        *_sizes(),
        Figure(
            "requests a core of the collector takes", f"{fed.requests / used:.0f} a second, copies counted"
        ),
        Figure("rows a core of it stores", f"{batches * 17 / used:,.0f} a second"),
        Figure("batches stored once", _once(batches, fed)),
        Figure("a batch on disk, before large merges", f"{stored['bytes'] / batches:.0f} bytes"),
        Figure("memory, engine included", f"{_series(memory)} MB after each round of {nodes:,}"),
    ]


def _stored_once(folder: Path, batches: int) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(apart("stored", str(folder / "db")))
    if stored["node_rounds"] != {"n": batches, "u": batches}:
        raise RuntimeError(f"a batch was lost or stored twice: {stored['node_rounds']} of {batches}")
    if not stored["job_rounds"]["n"] == stored["gpu_rounds"]["n"] == 8 * batches:
        raise RuntimeError(f"a part of a batch was lost: {stored}")
    return stored


def _once(batches: int, fed: Fed) -> str:
    return f"{batches:,} of {batches:,}, with {fed.cut:,} answers cut off"


def _series(memory: list[float]) -> str:
    return ", ".join(f"{each:.0f}" for each in memory)


def _sizes() -> list[Figure]:
    plain = sum(len(otlp.metrics(health(node, 1, time.time_ns()))) for node in range(50)) / 50
    small = sum(len(packed(node, 1, time.time_ns())) for node in range(50)) / 50
    text = f"{plain:,.0f} bytes, {small:,.0f} packed; {small * 8640 / 2**20:.1f} MiB a node and day"
    return [Figure("a round of a node with 8 GPUs and 8 ranks", text)]


def at_rate(extent: Extent) -> list[Figure]:
    """All rounds on end, as they become due; memory is looked at once in each."""
    fed, nodes, rounds = Fed(), extent.nodes, extent.rate_rounds
    work = [each for number in range(1, rounds + 1) for each in rounds_of(nodes, number)]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with collector(folder) as (process, port), sampled(lambda: memory_mb(process.pid)) as memory:
            start, before = time.perf_counter(), cpu_s(process.pid)
            asyncio.run(feed(port, work, AT_ONCE, 1 / 3, fed, nodes / ROUND_S))
            took, used = time.perf_counter() - start, cpu_s(process.pid) - before
        _stored_once(folder, len(work))
    who, slow = f"{nodes:,} agents, {nodes / ROUND_S:.0f} rounds a second", sorted(fed.latencies_s)
    middle, late = slow[len(slow) // 2], slow[len(slow) * 99 // 100]
    return [
        taken(who, len(work) / took, fed.longest_behind_s),
        Figure(f"{who}: the collector's part of one core", f"{used / took:.0%}"),
        Figure(f"{who}: answers", f"{middle:.2f} s in the median, 99 of 100 within {late:.2f} s"),
        Figure(f"{who}: batches stored once", _once(len(work), fed)),
        Figure(f"{who}: memory every {ROUND_S:.0f} s", f"{_series(memory)} MB"),
        Figure(f"{who}: memory in the second half of that", growth(memory)),
    ]


def taken(who: str, per_s: float, behind_s: float) -> Figure:
    """Whether the collector kept up, first of all."""
    kept_up = "kept up" if behind_s <= MOST_BEHIND_S else "FELL BEHIND"
    shown = f"{kept_up}: {per_s:.0f} a second; at worst {behind_s:.1f} s behind"
    return at_most(f"{who}: taken", behind_s, MOST_BEHIND_S, shown, " s behind")


@contextmanager
def sampled(read: Callable[[], float], every_s: float = ROUND_S) -> Iterator[list[float]]:
    """A value, from the first moment on until the block ends, and then once more."""
    found, over = [read()], threading.Event()

    def look() -> None:
        while not over.wait(every_s):
            found.append(read())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
        found.append(read())
    finally:
        over.set()
        thread.join()


def growth(memory: list[float], every_s: float = ROUND_S) -> str:
    """The slope, in words: what was allocated to get going is left out."""
    half = memory[len(memory) // 2 :]
    if len(half) < 3:
        return "too short to tell"
    a_minute = linear_regression(range(len(half)), half).slope * 60 / every_s
    return f"{a_minute:+.1f} MB a minute"


def killing(extent: Extent) -> list[Figure]:
    chance = random.Random(11)
    fed, port, busy = Fed(), 0, 0
    bodies: dict[tuple[int, int], bytes] = {}  # as in a spool: what is sent again is the same to the byte
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for life in range(extent.kills + 1):
            bodies |= {each[:2]: each[2] for each in rounds_of(extent.killed_nodes, life)}
            work = [(*key, body) for key, body in bodies.items() if key not in fed.taken]
            with collector(folder, port) as (process, port):
                if life < extent.kills:
                    killer = threading.Timer(chance.uniform(0.05, 1.5), process.kill)
                    killer.start()
                    busy += _until_dead(process, port, work, fed)
                    killer.join()
                else:
                    asyncio.run(feed(port, work, 32, 1 / 3, fed))
        _stored_once(folder, len(bodies))
    once = f"{len(fed.taken):,} of {len(bodies):,}; {busy} of the kills while batches were under way"
    return [Figure(f"batches stored once, the collector killed {extent.kills} times", once)]


def _until_dead(
    process: subprocess.Popen[str], port: int, work: list[tuple[int, int, bytes]], fed: Fed
) -> bool:
    """Whether it had something to do to the end."""

    async def until() -> bool:
        task = asyncio.create_task(feed(port, work, 32, 1 / 3, fed))
        while process.poll() is None and not task.done():
            await asyncio.sleep(0.02)
        busy = not task.done()
        await asyncio.to_thread(process.wait)
        task.cancel()
        return busy

    return asyncio.run(until())


def day(extent: Extent) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        where = str(extent.day_folder or folder)
        found = json.loads(apart("day", where, str(extent.nodes), str(extent.day_s)))
    return [Figure(what.replace("NODES", f"{extent.nodes:,}"), text) for what, text in found.items()]


WORK: dict[str, Callable[[Extent], list[Figure]]] = {
    "feed": feeding,
    "rate": at_rate,
    "kills": killing,
    "day": day,
}


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


def measured(part: str, extent: Extent) -> dict[str, Any]:
    """One part, as it is kept."""
    before = moment()
    print(f"  {part}", flush=True)
    figures = WORK[part](extent)
    when = f"{part}: measured {before.at} on {os.cpu_count()} cores, load average before {before.load1:.1f}"
    return {
        "when": when,
        "figures": [[each.what, each.value, each.target, each.met] for each in figures],
    }


def keep(part: str, found: dict[str, Any]) -> dict[str, Any]:
    """Renews one part; the others stay as they were measured."""
    known: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known[part] = found
    KEPT.write_text(json.dumps(known, indent=1) + "\n")
    return known


def section(known: dict[str, Any]) -> Section:
    """What is known, for the page."""
    parts = [known[name] for name in WORK if name in known]
    rows = tuple(Figure(*row) for each in parts for row in each["figures"])
    notes = ("; ".join(each["when"] for each in parts) + ".",)
    return Section(TITLE, rows, METHOD, RESOLVES, notes)


def main() -> None:
    usual = Extent()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(WORK)}; without: all but day"
    )
    parser.add_argument("--nodes", type=int, default=usual.nodes)
    parser.add_argument("--rounds", type=int, help="of feed (2) and rate (12)")
    parser.add_argument("--kills", type=int, default=usual.kills)
    parser.add_argument("--folder", type=Path, help="keep the day here, and go on with one that is there")
    parser.add_argument(
        "--seconds", type=float, default=usual.day_s, help="begin no hour of the day after these"
    )
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    extent = Extent(
        nodes=chosen.nodes,
        feed_rounds=chosen.rounds or usual.feed_rounds,
        rate_rounds=chosen.rounds or usual.rate_rounds,
        kills=chosen.kills,
        day_folder=chosen.folder,
        day_s=chosen.seconds,
    )
    for part in chosen.parts or list(WORK)[:-1]:
        found = measured(part, extent)
        show(section({part: found}))
        if chosen.write:
            shown = section(keep(part, found))
            PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), shown), encoding="utf-8")


if __name__ == "__main__":
    main()
