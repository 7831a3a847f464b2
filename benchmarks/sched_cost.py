"""What a context switch costs more while we account for time.

The scheduler's tracepoints fire for every task of the machine, so there are two
costs: what a traced thread pays, and what everybody else pays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks import jobs
from benchmarks.figures import Figure, Section
from benchmarks.intervals import difference_of_medians, ratio_of_medians
from ingero.attach import shapes
from ingero.attach.kernel import KernelSide, Settings
from ingero.model import layout
from ingero.model.layout import ProcFlag

TITLE = "Accounting for time: cost of a context switch"
ROUNDS, QUICK_ROUNDS = 25, 3
TRIPS, WARM_TRIPS = 8000, 500
SWITCHES_PER_S = 10_000


def _switch_ns(program: jobs.Job) -> float:
    """Nanoseconds from switch to switch."""
    for trips in (WARM_TRIPS, TRIPS):
        program.start(str(trips))
        said = program.answer()
    return float(said["took_ns"] / said["switches"])


def _attached() -> KernelSide:
    """Host probes on, nobody traced."""
    kernel = KernelSide(Settings(trace_all=False))
    shapes.choose(kernel)
    kernel.configure()
    kernel.attach_host()
    return kernel


def _trace(kernel: KernelSide, pid: int) -> None:
    proc = np.zeros(1, layout.PROC)
    proc["flags"] = int(ProcFlag.PROC_TARGET)
    kernel.write_proc(pid, proc)
    tids = set(kernel.read_threads()["h"]["pid"].tolist())
    if pid not in tids:
        raise RuntimeError("the threads are not accounted for, so nothing was measured")


def _round(program: jobs.Job) -> dict[str, list[float]]:
    """Off, on for others, on for it, and back. Threads stay traced, so a second kernel side ends it."""
    found: dict[str, list[float]] = {"untraced": [_switch_ns(program)], "bystander": [], "traced": []}
    kernel = _attached()
    try:
        found["bystander"].append(_switch_ns(program))
        _trace(kernel, program.pid)
        found["traced"] += [_switch_ns(program), _switch_ns(program)]
    finally:
        kernel.close()
    kernel = _attached()
    try:
        found["bystander"].append(_switch_ns(program))
    finally:
        kernel.close()
    found["untraced"].append(_switch_ns(program))
    return found


def _rounds(count: int) -> dict[str, NDArray[np.float64]]:
    program = jobs.compiled(jobs.HERE / "ping_pong.c", "-pthread")
    with jobs.job(program) as running:
        rounds = [_round(running) for _ in range(count)]
    return {name: np.array([each[name] for each in rounds]) for name in rounds[0]}


def _figures(times: dict[str, NDArray[np.float64]]) -> list[Figure]:
    bare = times["untraced"]
    figures = [Figure("untraced: ns per switch", f"{float(np.median(bare)):,.0f}")]
    for name, label in (("traced", "traced thread"), ("bystander", "any other thread")):
        added = difference_of_medians(times[name], bare)
        ratio = ratio_of_medians(times[name], bare)
        share = added.value * SWITCHES_PER_S / 1e7
        figures += [
            Figure(f"{label}: ns added per switch", added.rounded()),
            Figure(f"{label}: switch against untraced", f"{ratio} x"),
            Figure(f"{label}: of a core at {SWITCHES_PER_S:,} switches/s", f"{share:.2f} %"),
        ]
    null = ratio_of_medians(bare[:, 1:], bare[:, :1])
    return [*figures, Figure("untraced, end against start of a round (null test)", f"{null} x")]


METHOD = """\
Two threads on one core pass a byte through two pipes, {switches:,} switches per segment. In each of
{rounds} rounds: untraced; with all host probes on and another process's threads traced, or none; traced;
and the same backwards. A switch here is a blocking read, a wake-up and a switch: four tracepoints, a wait
to classify, a waker to count."""

RESOLVES = """\
Values are medians with 95 % bootstrap intervals over rounds. Two threads that do nothing but switch keep
everything in the cache; it is the cheapest switch there is, so the ratio is the worst case and the
nanoseconds are the best. The null test shows how far equal segments differ."""


def measure(quick: bool) -> Section:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    times = _rounds(rounds)
    return Section(
        TITLE,
        tuple(_figures(times)),
        METHOD.format(switches=2 * TRIPS, rounds=rounds),
        RESOLVES,
    )
