"""What metrics cost the agent: counting a second in, a scrape, a round of OTLP."""

from __future__ import annotations

import gc
import gzip
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks.figures import Figure, Section, at_most
from ingero.attach.probes import operations
from ingero.clock import Clock
from ingero.model.live import DatabaseStatus, LiveView
from ingero.model.metrics import Distribution, SeriesLimits, Snapshot
from ingero.model.window import OPERATION, THREAD_TIME, Process, Window
from ingero.serve.answers.metrics import Meter
from ingero.serve.metrics.exposition import BOUNDS_S, text
from ingero.serve.metrics.otlp_metrics import encode, host_resource

TITLE = "Metrics"
SECOND = 1_000_000_000
SCRAPE_S, ROUND_S = 15, 10  # how often Prometheus usually asks, and how often we send
SHARE_TARGETS = {"8 processes": 1.0, "100 processes": 5.0}  # percent of a core
# Processes, operations of each.
NODES = {"8 processes": (8, 12), "100 processes": (100, 30)}


def _window(processes: int, operations_each: int, second: int) -> Window:
    """A second in which every process made every call."""
    numbers = [each.number for each in operations()][:operations_each]
    rows = np.zeros(processes * len(numbers), OPERATION)
    rows["pid"] = np.repeat(np.arange(1000, 1000 + processes), len(numbers))
    rows["op"] = np.tile(numbers, processes)
    rows["count"], rows["sum_ns"], rows["max_ns"], rows["bytes"] = 1000, 9_000_000, 40_000, 1 << 20
    rows["slots"][:, 60:90] = np.random.default_rng(second).integers(0, 60, (len(rows), 30))
    threads = np.zeros(processes, THREAD_TIME)
    threads["pid"] = threads["tid"] = np.arange(1000, 1000 + processes)
    threads["feeder"], threads["ns"] = True, SECOND // 11
    start = second * SECOND
    return Window(start, start + SECOND, operations=rows, threads=threads)


def _ms(work: Callable[[], object], times: int) -> float:
    """Processor time of one, the median of several."""
    took = []
    for _ in range(times):
        gc.collect()
        began = time.thread_time()
        work()
        took.append((time.thread_time() - began) * 1000)
    return median(took)


def _series(snapshot: Snapshot) -> int:
    """As Prometheus counts them."""
    points = [point for found in snapshot.points.values() for point in found]
    return sum(len(BOUNDS_S) + 3 if isinstance(point.value, Distribution) else 1 for point in points)


def _figures(name: str, processes: int, operations_each: int, times: int) -> list[Figure]:
    meter = Meter(operations(), Clock.now(), "bench", SeriesLimits())
    people = [Process(pid, 1, "python", "python train.py", 0, 0) for pid in range(1000, 1000 + processes)]
    first = _window(processes, operations_each, 0)
    first.processes = people
    meter.add(first)
    windows = iter([_window(processes, operations_each, second) for second in range(1, times + 1)])
    add_ms = _ms(lambda: meter.add(next(windows)), times)
    view = LiveView(time.time_ns(), 0, database=DatabaseStatus("x.db", 1))

    def fresh() -> Snapshot:
        meter.observe(view)
        return meter.snapshot()

    snapshot = fresh()
    scrape_ms = _ms(lambda: gzip.compress(text(fresh(), "")[0], 1), times)
    host = host_resource("bench", {})
    round_ms = _ms(lambda: gzip.compress(encode(fresh(), host), 1), times)
    share = (add_ms + scrape_ms / SCRAPE_S + round_ms / ROUND_S) / 10
    size = len(text(snapshot, "")[0])
    return [
        Figure(f"{name}: series", f"{_series(snapshot):,} ({size / 1e6:.1f} MB of text)"),
        Figure(f"{name}: counting a second in", f"{add_ms:.1f} ms"),
        Figure(f"{name}: a scrape", f"{scrape_ms:.0f} ms"),
        Figure(f"{name}: a round of OTLP", f"{round_ms:.0f} ms ({len(encode(snapshot, host)) / 1e3:.0f} kB)"),
        at_most(
            f"metrics of {name}, all together",
            share,
            SHARE_TARGETS[name],
            f"{share:.2f} % of a core",
            " %",
        ),
    ]


METHOD = f"""\
Processor time of the thread that does it, median of several, on made-up seconds in which each process calls
12 operations, or 30; text and requests are compressed. All together: a second counted in each second, a
scrape every {SCRAPE_S} s, a round of OTLP every {ROUND_S} s. With 100 processes the
bounds on series are reached."""

RESOLVES = """\
Network and TLS are not in it; they are some milliseconds a scrape. Without --prometheus and --otlp nothing
of this is done."""


def measure(quick: bool) -> Section:
    figures: list[Figure] = []
    for name, (processes, each) in NODES.items():
        figures += _figures(name, processes, each, 3 if quick else 15)
    return Section(TITLE, tuple(figures), METHOD, RESOLVES)
