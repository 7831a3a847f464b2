"""How long a switch takes that walks frames, on kernels that cannot walk when the wait is over.

Before 6.18 the innermost frames of a wait are walked when it begins, with the run-queue
lock held: a core that wants to wake something on this one waits meanwhile. So the longest
time matters, not only the usual one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.figures import Figure, Section
from benchmarks.walk_cost import pythons
from benchmarks.walks import walk_costs, walking
from ingero.scenarios import cuda
from tests.ebpf.tracing import WORKLOADS, workload

TITLE = "A walk with the run-queue lock held"
PROGRAM = str(WORKLOADS / "waits" / "many_naps.py")
KINDS = {"same": "frames known", "new": "every code object met first"}
ROUNDS, QUICK_ROUNDS = 3, 1
NAPS = {"same": 600, "new": 150}


def _round(python: str, kind: str, naps: int) -> np.void:
    with (
        walking("early") as tracer,
        workload(python, PROGRAM, str(cuda.stub_dir()), kind, str(naps)) as job,
    ):
        tracer.until_target(job.pid)
        tracer.until(lambda: tracer.agent._interpreters.version_of(job.pid) is not None)
        job.go()
        costs = walk_costs(tracer, "locked_walks")
    if costs["count"] < naps / 2:
        raise RuntimeError(f"{costs['count']} walks of {naps} naps: nothing was measured")
    return costs


def _figures(python: str, kind: str, rounds: int) -> list[Figure]:
    found = [_round(python, kind, NAPS[kind]) for _ in range(rounds)]
    walks = sum(int(each["count"]) for each in found)
    mean_us = sum(int(each["ns"]) for each in found) / walks / 1e3
    longest_us = sorted(int(each["max_ns"]) / 1e3 for each in found)
    usual_us, worst_us = longest_us[len(found) // 2], longest_us[-1]
    what = f"{Path(python).resolve().name}, {KINDS[kind]}"
    shown = f"{usual_us:,.1f} µs (worst round {worst_us:,.1f} µs)"
    return [
        Figure(f"{what}: mean", f"{mean_us:,.2f} µs ({walks:,} walks)"),
        Figure(f"{what}: longest", shown),
    ]


def measure(quick: bool) -> Section:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    chosen = pythons()[-1:] if quick else pythons()
    figures = [each for python in chosen for kind in KINDS for each in _figures(python, kind, rounds)]
    return Section(TITLE, tuple(figures), METHOD.format(rounds=rounds, **NAPS), RESOLVES)


METHOD = """\
As on a kernel before 6.18 (`INGERO_WAIT_LINES=early`): a Python thread naps for 1.5 ms {same} times behind 24
frames, and {new} times behind functions that were just made, with names and line tables nearly as long as are
copied. Measured by the switch's own program, from its begin to the end of the walk; {rounds} rounds each. The
longest is that of the median round."""

RESOLVES = """\
Interrupts are off meanwhile, so what is longer than usual is memory that had to be fetched, or a guest whose
core was taken by its host. Later kernels walk when the wait is over, without a lock."""
