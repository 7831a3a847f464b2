"""What a collector with its embedded store can take, and whether anything is lost. Prints; writes nothing.

    python -m benchmarks.fleet.run [--nodes 5000] [--rounds 6] [--kills 50] [--day]

Feeding: NODES agents, each with eight GPUs and eight ranks, send ROUNDS rounds as fast as it goes; a third of
the answers are cut off. Killing: the same with few nodes while the collector is killed again and again.
Day: a day of NODES nodes is made inside the store, and the page is asked over it.
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

from benchmarks.fleet.feeding import SECRET, Fed, feed, health, packed
from ingero.fleet.push import otlp

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


def feeding(nodes: int, rounds: int) -> None:
    plain = sum(len(otlp.metrics(health(node, 1, time.time_ns()))) for node in range(50)) / 50
    small = sum(len(packed(node, 1, time.time_ns())) for node in range(50)) / 50
    print(f"a round of a node with 8 GPUs and 8 ranks: {plain:,.0f} bytes, {small:,.0f} packed")
    print(f"  {small * 8640 / 2**20:.1f} MiB a node and day")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with collector(folder) as (process, port):
            fed = Fed()
            memory = []
            began, used = time.perf_counter(), cpu_s(process.pid)
            for number in range(1, rounds + 1):
                at_ns = time.time_ns()
                work = [(node, number, packed(node, number, at_ns + node)) for node in range(nodes)]
                asyncio.run(feed(port, work, 256, 1 / 3, fed))
                memory.append(memory_mb(process.pid))
                print(f"  round {number}: {memory[-1]:.0f} MB, {len(fed.taken):,} taken", flush=True)
            took, used = time.perf_counter() - began, cpu_s(process.pid) - used
        stored = json.loads(apart("stored", str(folder / "db")))
    batches = nodes * rounds
    rows, slow = batches * 17, sorted(fed.latencies_s)
    print(f"{batches:,} batches, {rows:,} rows in {took:.0f} s; {used:.0f} s of a core used by the collector")
    print(f"  {fed.requests / took:.0f} requests/s, {rows / took:,.0f} rows/s")
    print(f"  a core takes {fed.requests / used:.0f} requests/s, {rows / used:,.0f} rows/s")
    middle, late = slow[len(slow) // 2], slow[len(slow) * 99 // 100]
    print(f"  answers: median {middle * 1000:.0f} ms, 99 of 100 within {late * 1000:.0f} ms")
    print(f"  cut off {fed.cut:,}, told to come back {fed.later:,}")
    print(f"  memory after each round: {', '.join(f'{each:.0f}' for each in memory)} MB")
    print(f"  stored {stored['node_rounds']}, expected {batches:,}")
    print(f"  on disk {stored['bytes'] / batches:.0f} bytes a batch")
    assert stored["node_rounds"] == {"n": batches, "u": batches}, "a batch was lost or stored twice"
    assert stored["job_rounds"]["n"] == stored["gpu_rounds"]["n"] == 8 * batches


def killing(kills: int) -> None:
    chance = random.Random(11)
    fed, port = Fed(), 0
    bodies: dict[tuple[int, int], bytes] = {}  # as in a spool: what is sent again is the same to the byte
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for life in range(kills + 1):
            with collector(folder, port) as (process, port):
                at_ns = time.time_ns()
                bodies |= {(node, life): packed(node, life, at_ns + node) for node in range(100)}
                work = [(*key, body) for key, body in bodies.items() if key not in fed.taken]
                if life < kills:
                    killer = threading.Timer(chance.uniform(0.05, 1.5), process.kill)
                    killer.start()
                    _until_dead(process, port, work, fed)
                    killer.join()
                else:
                    asyncio.run(feed(port, work, 32, 1 / 3, fed))
        stored = json.loads(apart("stored", str(folder / "db")))
    print(f"killed {kills} times: {len(fed.taken):,} batches counted as sent, stored {stored['node_rounds']}")
    assert stored["node_rounds"] == {"n": len(bodies), "u": len(bodies)}, "a batch was lost or stored twice"


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument(
        "--day", action="store_true", help="a day of NODES nodes: minutes, and some gigabytes of disk"
    )
    chosen = parser.parse_args()
    feeding(chosen.nodes, chosen.rounds)
    if chosen.kills:
        killing(chosen.kills)
    if chosen.day:
        with tempfile.TemporaryDirectory() as folder:
            print(apart("day", f"{folder}/db", str(chosen.nodes)))


if __name__ == "__main__":
    main()
