"""Runs the soak: one long trace, short ones beside it, and a crowd of jobs that come and go.

    python -m benchmarks.soak.run [--seconds 7200] [--folder build/soak] [--write]

Needs root. A sample is written every ten seconds, so that the table can be made of a
run that still goes on (`python -m benchmarks.soak.page FOLDER`). --write puts it into
docs/reliability.md. Exit code 1: something failed, was left behind, or grew.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from benchmarks import jobs as traces
from benchmarks import machine
from benchmarks.soak import page
from benchmarks.soak.crowd import Crowd, crowd
from benchmarks.soak.facts import Facts, append, left_in_kernel, write_facts
from benchmarks.soak.sample import KernelObjects, children, kernel_objects, take
from benchmarks.soak.short import ShortTraces

EVERY_S = 10.0
INSIDE = (sys.executable, "-m", "benchmarks.soak.inside")
INSIDE_S = 30.0
MAX_DB = "16m"  # small, so that old detail is removed all the time


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scrape(port: int) -> int:
    """Bytes of one scrape, as a Prometheus would do it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return len(answer.read())


def soak(folder: Path, seconds: float, seed: int, hurry: float = 1.0, inside: bool = False) -> Facts:
    port = free_port()
    (folder / "short").mkdir(parents=True)
    ingero = (*INSIDE, str(folder / "inside.jsonl"), str(INSIDE_S)) if inside else traces.INGERO
    with crowd(folder, folder / "run", seed, hurry) as them:
        them.steady()
        words = ("--cgroup", str(them.cgroup), "--max-db", MAX_DB, "--prometheus", f"http://127.0.0.1:{port}")
        with traces.tracing(folder, *words, ingero=ingero) as trace:
            short = ShortTraces(folder / "short", them.cgroup)
            facts = Facts(began=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), max_db=MAX_DB, seed=seed)
            try:
                watch(folder, trace, them, short, facts, seconds, port)
                short.end(facts)
            finally:
                short.kill()
            held = kernel_objects([trace.pid, *children(trace.pid)])
            finish(trace, held, facts)
        facts.jobs = them.started
        facts.problems += them.failed
    return facts


def watch(
    folder: Path,
    trace: traces.Trace,
    them: Crowd,
    short: ShortTraces,
    facts: Facts,
    seconds: float,
    port: int,
) -> None:
    """Until the time is over, or the trace is."""
    began, number = time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        if trace.process.poll() is not None:
            raise RuntimeError(f"the trace ended by itself: {trace.said.strip()[-500:]}")
        them.tend()
        short.tend(facts)
        if now >= began + number * EVERY_S:
            number += 1
            facts.scraped_bytes = scrape(port)
            append(folder, take(trace.pid, trace.db, now - began, len(them.running)))
            facts.jobs = them.started
            write_facts(folder, facts)
        time.sleep(0.25)


def finish(trace: traces.Trace, held: KernelObjects, facts: Facts) -> None:
    """It ends well, its file is sound, and nothing of it stays in the kernel."""
    trace.stop()
    facts.problems += [f"left in the kernel: {each}" for each in left_in_kernel(held)]
    if trace.sql("PRAGMA integrity_check") != [("ok",)]:
        facts.problems.append("the database is damaged")
    lost = dict(trace.sql("SELECT reason, SUM(count) FROM losses GROUP BY reason"))
    facts.losses = {str(reason): int(count) for reason, count in lost.items()}


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak.run", description="A long trace.")
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--folder", type=Path, default=Path("build/soak"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hurry", type=float, default=1.0, help="so many times as many jobs a second")
    parser.add_argument("--inside", action="store_true", help="write down what the agent's memory is made of")
    parser.add_argument("--write", action="store_true", help="put the table into docs/reliability.md")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    chosen = parse(words)
    if not machine.may_trace():
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that jobs and cgroups are cleaned up
    folder = chosen.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    facts = soak(folder, chosen.seconds, chosen.seed, chosen.hurry, chosen.inside)
    write_facts(folder, facts)
    text, grown = page.section(folder)
    print(text)
    if chosen.write:
        page.write(folder)
    for problem in (*facts.problems, *grown):
        print(f"problem: {problem}")
    return int(bool(facts.problems or grown))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
