"""Runs the fuzzers: every target, each for its part of the time.

    python -m benchmarks.fuzz.run [--seconds 60] [--seed N] [--only NAME,...] [--write]
    python -m benchmarks.fuzz.run --replay NAME FILE

The seed is printed; with the same seed the same inputs come in the same order. An input
that fails is written to build/fuzz with how to try it again. Exit code 1: something failed.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.fuzz import page
from benchmarks.fuzz.child import STATE, input_of, try_one, work
from benchmarks.fuzz.target import Target
from benchmarks.fuzz.targets import ALL

STUCK_S = 60.0  # without an input done: it waits for something, or is in code that hears no signal
MOST_RESTARTS = 20
FORK = multiprocessing.get_context("fork")


@dataclass
class Outcome:
    name: str
    tried: int = 0
    seconds: float = 0.0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)  # signature: number, text


def fuzz(target: Target, seed: int, seconds: float, most: int) -> Outcome:
    """In child processes, one after the other if they crash."""
    target.corpus()  # made once, for all children
    outcome, began = Outcome(target.name), time.monotonic()
    until, first = began + seconds, 0
    for _ in range(MOST_RESTARTS):
        state = mmap.mmap(-1, STATE.size)
        ours, theirs = FORK.Pipe(duplex=False)
        child = FORK.Process(target=work, args=(target, seed, first, until, most - first, state, theirs))
        child.start()
        theirs.close()
        how = _watch(child, ours, state, outcome)
        number, tried = STATE.unpack(state[: STATE.size])
        outcome.tried += tried
        if not how:
            break
        outcome.failures.setdefault(how, (number, how))
        first = number + 1
    outcome.seconds = time.monotonic() - began
    return outcome


def _watch(child: BaseProcess, ours: Connection, state: mmap.mmap, outcome: Outcome) -> str:
    """How it ended, where that is a failure."""
    last, since = -1, time.monotonic()
    while True:
        if ours.poll(0.2):
            try:
                number, signature, text = ours.recv()
            except EOFError:
                break
            outcome.failures.setdefault(signature, (number, text))
            continue
        if not child.is_alive():
            break
        number, _ = STATE.unpack(state[: STATE.size])
        if number != last:
            last, since = number, time.monotonic()
        elif time.monotonic() - since > STUCK_S:
            child.kill()
            child.join()
            return f"stuck for {STUCK_S:g} s"
    child.join()
    code = child.exitcode or 0
    return f"ended by {signal.Signals(-code).name}" if code < 0 else ("exit" if code else "")


def keep(target: Target, seed: int, outcome: Outcome, folder: Path) -> None:
    """Write every input that failed, and say how to see it again."""
    corpus = target.corpus()
    for signature, (number, text) in outcome.failures.items():
        path = folder / f"{target.name}-{seed}-{number}"
        path.write_bytes(input_of(target, corpus, seed, number))
        print(f"FAILED {target.name}: {signature}\n{text.rstrip()}")
        print(f"  seed {seed}, input {number}: python -m benchmarks.fuzz.run --replay {target.name} {path}\n")


def replay(target: Target, path: Path) -> int:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with target.ready() as attempt:
        failed = try_one(attempt, target, path.read_bytes())
    print(failed[1] if failed else "nothing failed")
    return int(failed is not None)


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz.run", description="Hostile inputs.")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="names of targets, with commas")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--replay", nargs=2, metavar=("NAME", "FILE"))
    parser.add_argument("--write", action="store_true", help="add the counts to docs/reliability.md")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    chosen = parse(words)
    known = {target.name: target for target in ALL}
    if chosen.replay:
        return replay(known[chosen.replay[0]], Path(chosen.replay[1]))
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    targets = [known[name] for name in chosen.only.split(",")] if chosen.only else list(ALL)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}", flush=True)
    failed = 0
    for target in targets:
        outcome = fuzz(target, seed, chosen.seconds / len(targets), chosen.most)
        rate = outcome.tried / max(outcome.seconds, 0.001)
        print(f"{target.name:12} {outcome.tried:9,} inputs, {rate:8,.0f}/s", flush=True)
        keep(target, seed, outcome, chosen.folder)
        page.add(chosen.folder, target.name, outcome.tried, len(outcome.failures))
        failed += len(outcome.failures)
    if chosen.write:
        page.write(chosen.folder)
    return int(failed > 0)


if __name__ == "__main__":
    os.environ.setdefault("HOME", "/nonexistent")
    raise SystemExit(main(sys.argv[1:]))
