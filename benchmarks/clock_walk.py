"""How long the interrupt takes in which the clock sees who is on a core, with a deep Python stack there.

Nothing else happens on the core meanwhile, so the longest time matters. From 6.18 on the thread walks its
stack itself afterwards; earlier kernels walk in the interrupt, and give up after a while.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.figures import Figure, Section, at_most
from benchmarks.walk_cost import pythons
from benchmarks.walks import walk_costs, walking
from ingero.scenarios import cuda
from tests.ebpf.tracing import WORKLOADS, workload

TITLE = "The clock's interrupt"
PROGRAM = str(WORKLOADS / "deep.py")
DEPTH = 512
SECONDS, QUICK_SECONDS = 6.0, 1.0
ROUNDS, QUICK_ROUNDS = 3, 1
TARGET_US = 100.0
KINDS = {"after": "walked by the thread itself (6.18)", "early": "walked in the interrupt (before)"}


def _round(python: str, kind: str, seconds: float) -> np.void:
    words = (str(cuda.stub_dir()), str(DEPTH), "3", str(seconds))
    with walking(kind) as tracer, workload(python, PROGRAM, *words) as job:
        tracer.until_target(job.pid)
        tracer.until(lambda: tracer.agent._interpreters.version_of(job.pid) is not None)
        job.go()
        costs = walk_costs(tracer, "clock_costs")
    if costs["count"] < 10 * seconds:
        raise RuntimeError(f"{costs['count']} samples in {seconds} s: nothing was measured")
    return costs


def _figures(python: str, kind: str, rounds: int, seconds: float) -> list[Figure]:
    found = [_round(python, kind, seconds) for _ in range(rounds)]
    strikes = sum(int(each["count"]) for each in found)
    mean_us = sum(int(each["ns"]) for each in found) / strikes / 1e3
    longest_us = sorted(int(each["max_ns"]) / 1e3 for each in found)
    usual_us, worst_us = longest_us[len(found) // 2], longest_us[-1]
    what = f"{Path(python).resolve().name}, {KINDS[kind]}"
    shown = f"{usual_us:,.1f} µs (worst round {worst_us:,.1f} µs)"
    return [
        Figure(f"{what}: mean", f"{mean_us:,.2f} µs ({strikes:,} strikes)"),
        at_most(f"{what}: longest", usual_us, TARGET_US, shown, " µs"),
    ]


def measure(quick: bool) -> Section:
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
    chosen = pythons()[-1:] if quick else pythons()
    figures = [
        each for python in chosen for kind in KINDS for each in _figures(python, kind, rounds, seconds)
    ]
    method = METHOD.format(depth=DEPTH, seconds=seconds, rounds=rounds)
    return Section(TITLE, tuple(figures), method, RESOLVES)


METHOD = """\
A Python program computes for {seconds:g} s behind {depth} frames; 49 times a second a clock looks where it
is. Measured by the clock's own program, from its begin to its end; {rounds} rounds each, as on kernels from
6.18 on and as on those before (`INGERO_WAIT_LINES=early`). The longest is that of the median round."""

RESOLVES = """\
What is longer than usual is memory that had to be fetched, or a guest whose core was taken by its host. In
the interrupt a walk ends after 192 frames (48 before Python 3.12), or at the first look at the time after
50 µs; its stack then ends in `[deeper frames not read]`. Code objects met there are not copied: the agent
reads them."""
