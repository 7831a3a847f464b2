"""What tracing costs real jobs: steps with the probes on against steps with them off, in one process.

The agent stays, its probes come and go every half second (intermittent.py). A traced
stretch is compared with the two untraced ones beside it, so that a machine that drifts
favours neither. The null test compares untraced stretches with the untraced ones beside
them in the same way. (Dividing by the time of a fixed piece of Python, to take out the
changing speed of the cores, was tried: it made the null test three times wider.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import jobs
from benchmarks.gpu.around import JOBS

WORK = ("small-training", "many-items", "no-caching", "launch-loop", "graph-decode", "large-training")
SETTINGS = {"default": "0.02", "no budget": "off"}
CORES = 4
SKIPPED_NS = 40_000_000  # after a change: probes go on one library after the other
RESAMPLES = 4000

Steps = NDArray[np.int64]  # rows: when, how long


@dataclass(frozen=True, slots=True)
class Cost:
    """One kind of work under one setting."""

    work: str
    setting: str
    step_ms: float
    ratio: tuple[float, float, float]  # with its 95 % interval
    null: tuple[float, float, float]
    pairs: int
    own_share: float  # by the agent's own account: hits times their cost
    hits_per_s: float
    ns_per_hit: float
    actions: list[str]


def run(folder: Path, seconds: float, work: list[str], settings: list[str]) -> list[Cost]:
    found: list[Cost] = []
    for name in work or WORK:
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        try:
            costs = _measured(name, seconds, place, settings)
        except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            print(f"{name}: BROKEN: {type(error).__name__}: {error}", flush=True)
            continue
        found += costs
        (place / "costs.json").write_text(json.dumps([asdict(each) for each in costs]))
        print("\n".join(map(_said, costs)), flush=True)
    return found


def _said(cost: Cost) -> str:
    ratio, null = ("{:.4f} [{:.4f}, {:.4f}]".format(*each) for each in (cost.ratio, cost.null))
    return (
        f"{cost.work}, {cost.setting}: {cost.step_ms:.3f} ms a step, x {ratio}, null {null}, "
        f"{cost.pairs} pairs; own figure {cost.own_share:.2%}, {cost.hits_per_s:,.0f} hits/s, "
        f"{cost.ns_per_hit:.0f} ns; {'; '.join(cost.actions)}"
    )


def _measured(work: str, seconds: float, folder: Path, settings: list[str]) -> list[Cost]:
    cores = sorted(os.sched_getaffinity(0))
    pinned = ("taskset", "-c", ",".join(map(str, cores[:CORES])), sys.executable)
    with jobs.job(*pinned, JOBS / "paced.py", work, folder / "book") as job:
        told = {
            setting: _intermittent(job.pid, budget, seconds if setting == "default" else seconds / 2, folder)
            for setting, budget in SETTINGS.items()
            if setting in (settings or SETTINGS)
        }
        assert job.process.stdin is not None
        job.process.stdin.close()
        job.process.wait(30)
    steps = read_book(folder / "book")
    return [_cost(work, setting, each, steps) for setting, each in told.items()]


def _intermittent(pid: int, budget: str, seconds: float, folder: Path) -> dict[str, Any]:
    times = folder / f"segments-{budget}.json"
    words = ("benchmarks.gpu.intermittent", pid, folder / f"trace-{budget}.db", times, seconds, budget)
    subprocess.run([sys.executable, "-m", *map(str, words)], check=True, env=jobs.environment(folder))
    told: dict[str, Any] = json.loads(times.read_text())
    return told


def _cost(work: str, setting: str, told: dict[str, Any], steps: Steps) -> Cost:
    pairs, nulls, step_ns = compared(steps, told["segments"])
    return Cost(
        work,
        setting,
        step_ns / 1e6,
        interval(pairs),
        interval(nulls),
        len(pairs),
        float(np.mean(told["shares"][3:])),
        float(np.mean(told["hits"][3:])),
        told["ns_per_hit"],
        told["actions"],
    )


def compared(
    steps: Steps, segments: list[tuple[str, int, int]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Ratios of traced stretches, of untraced ones, and the mean untraced step."""
    spans = [(name, begin + SKIPPED_NS, end) for name, begin, end in segments]
    value = [_mean(steps, begin, end) for _, begin, end in spans]
    on = [at for at, span in enumerate(spans[1:-1], start=1) if span[0] == "on"]
    off = [at for at, span in enumerate(spans[2:-2], start=2) if span[0] == "off"]
    pairs = [value[at] / ((value[at - 1] + value[at + 1]) / 2) for at in on]
    nulls = [value[at] / ((value[at - 2] + value[at + 2]) / 2) for at in off]
    return (
        np.array([each for each in pairs if np.isfinite(each)]),
        np.array([each for each in nulls if np.isfinite(each)]),
        float(np.nanmean([value[at] for at in off])),
    )


def read_book(path: Path) -> Steps:
    return np.fromfile(path, np.int64).reshape(-1, 2)


def _within(steps: Steps, begin: int, end: int) -> NDArray[np.int64]:
    inside = (steps[:, 0] >= begin) & (steps[:, 0] + steps[:, 1] <= end)
    took_ns: NDArray[np.int64] = steps[inside, 1]
    return took_ns


def _mean(steps: Steps, begin: int, end: int) -> float:
    inside = _within(steps, begin, end)
    return float(inside.mean()) if len(inside) else float("nan")


def interval(ratios: NDArray[np.float64]) -> tuple[float, float, float]:
    """Their mean and a 95 % interval of it, by resampling."""
    chosen = np.random.default_rng(1).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    low, high = np.quantile(ratios[chosen].mean(axis=1), (0.025, 0.975))
    return float(ratios.mean()), float(low), float(high)
