"""What is counted exactly at which rate, how far estimates are off, and what that costs, by kind of job."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.figures import Figure, Section, at_most

TITLE = "Counts under the budget"
SECONDS = 6
RUNS, QUICK_RUNS = 3, 1
EVERYDAY_RUNS = 20
ERROR_TARGET_PERCENT, INSIDE_TARGET_PERCENT = 10.0, 95.0
BUDGET_PERCENT = 2.0
COUNTS = "SELECT op, SUM(count), MIN(exact), SUM(count_error) FROM operations WHERE pid = ? GROUP BY op"

METHOD = """\
Programs in C on the stub's libraries, {seconds} s each, a call of 5 us, `ingero trace --pid` at default
settings from before their first step. What they made they count themselves. *Off* is how far a count is from
that, *stated* the sum of `count_error` over it, both medians of {runs} runs ({everyday} of the everyday job);
*inside* is how many runs have the truth within what is stated. *Exact* names the functions whose counts were
exact in every run. *Cost* is ingero's own figure (`overhead.share`), the mean of all seconds but the first,
which is given apart."""

RESOLVES = """\
The cost is calibrated, not measured against an untraced run: that is in "Cost of a probe" and, for real jobs,
in real-gpu.md. A busy machine makes on-periods late, and errors larger."""


@dataclass(frozen=True)
class Kind:
    """A kind of job: what it does, how it is started, and what it says it made of each function."""

    what: str
    source: str
    words: tuple[str, ...]
    made: dict[str, str]
    counted: str  # the function that is looked at
    kernel_us: str = "0.05"


STEPS = {"cuLaunchKernel": "launches", "cudaStreamSynchronize": "syncs", "cudaMalloc": "allocations"}
KINDS = (
    Kind("1,600 launches a second", "hot_steps.c", (str(SECONDS), "50", "30000"), STEPS, "cuLaunchKernel"),
    Kind("everyday: 10,000 launches a second, 30 steps", "hot_steps.c", (str(SECONDS), "320", "30000"), STEPS,
         "cuLaunchKernel"),
    Kind("launch-bound: launches without end", "hot_steps.c", (str(SECONDS), "400", "0"), STEPS,
         "cuLaunchKernel"),
    Kind("`.item()` without end", "hot_waits.c", ("items", str(SECONDS), "40"),
         {"cuStreamSynchronize": "syncs", "cuMemcpyDtoHAsync_v2": "copies", "cuLaunchKernel": "launches"},
         "cuStreamSynchronize", "20"),
    Kind("no caching allocator", "hot_waits.c", ("allocations", str(SECONDS), "40"),
         {"cuMemAlloc_v2": "allocations", "cuMemFree_v2": "allocations", "cuLaunchKernel": "launches"},
         "cuMemAlloc_v2", "20"),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    rate: float
    off: float
    stated: float
    inside: bool
    exact: frozenset[str]
    first: float
    later: float


def _run(kind: Kind) -> Outcome:
    program = jobs.compiled(jobs.WORKLOADS / kind.source)
    calls = {"INGERO_STUB_CALL_NS": "5000", "INGERO_STUB_KERNEL_US": kind.kernel_us}
    with (
        tempfile.TemporaryDirectory() as name,
        jobs.job(program, *kind.words, **calls) as running,
        jobs.tracing(Path(name), "--pid", str(running.pid)) as trace,
    ):
        running.start()
        said = running.answer()
        running.kill()
        with contextlib.suppress(RuntimeError):
            trace.stop()
        rows = trace.sql(
            "SELECT op, SUM(count), MIN(exact), SUM(count_error) FROM operations WHERE pid = ? GROUP BY op",
            running.pid,
        )
        shares = [row[0] for row in trace.sql("SELECT share FROM overhead ORDER BY bucket_start_ns")]
    return _outcome(kind, said, {row[0]: row[1:] for row in rows}, [share for share in shares if share])


def _outcome(kind: Kind, said: dict[str, Any], rows: dict[str, Any], shares: list[float]) -> Outcome:
    count, _, error = rows[kind.counted]
    made = said[kind.made[kind.counted]]
    exact = frozenset(
        op for op, key in kind.made.items() if op in rows and rows[op][1] and rows[op][0] == said[key]
    )
    return Outcome(
        made / SECONDS,
        abs(count - made) / made,
        error / made,
        abs(count - made) <= error,
        exact,
        shares[0] if shares else 0.0,
        statistics.fmean(shares[1:]) if shares[1:] else 0.0,
    )


def _figures(kind: Kind, outcomes: list[Outcome]) -> list[Figure]:
    off = 100 * statistics.median(each.off for each in outcomes)
    stated = 100 * statistics.median(each.stated for each in outcomes)
    inside = sum(each.inside for each in outcomes)
    rate = statistics.median(each.rate for each in outcomes)
    exact = ", ".join(sorted(frozenset.intersection(*(each.exact for each in outcomes)))) or "none"
    cost = 100 * statistics.fmean(each.later for each in outcomes)
    first = 100 * statistics.fmean(each.first for each in outcomes)
    held = f"inside in {inside} of {len(outcomes)}"
    shown = f"{rate:,.0f} a second: off {off:.1f} %, stated ±{stated:.1f} %, {held}"
    counted = f"{kind.what}: {kind.counted}"
    figure = Figure(counted, shown)
    if "everyday" in kind.what:
        good = stated <= ERROR_TARGET_PERCENT and 100 * inside >= INSIDE_TARGET_PERCENT * len(outcomes)
        figure = Figure(counted, shown, "stated ≤ 10 %, inside ≥ 95 %", good)
    return [
        figure,
        Figure(f"{kind.what}: exact", exact),
        at_most(
            f"{kind.what}: cost", cost, BUDGET_PERCENT, f"{cost:.2f} %; first second {first:.2f} %", " %"
        ),
    ]


def measure(quick: bool) -> Section:
    figures: list[Figure] = []
    for kind in KINDS:
        runs = QUICK_RUNS if quick else EVERYDAY_RUNS if "everyday" in kind.what else RUNS
        figures += _figures(kind, [_run(kind) for _ in range(runs)])
    method = METHOD.format(seconds=SECONDS, runs=RUNS, everyday=EVERYDAY_RUNS)
    return Section(TITLE, tuple(figures), method, RESOLVES)
