"""Threads that take turns are slowed together; hot functions go on and off, and everything comes back."""

from __future__ import annotations

import mmap
import os
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest

from ingero.attach.kernel import Detail
from ingero.attach.probes import BY_NAME
from ingero.governor.governor import Governor, at_once
from ingero.governor.policy import ALL, Watch
from ingero.governor.rates import OPERATIONS, THREADS
from ingero.model.hit_cost import HitCost
from ingero.model.layout import THREAD_COST, THREAD_TOTALS, Bucket, HeaderFlag
from ingero.model.window import OPERATION, THREAD_TIME, Window
from tests.builders import window

LAUNCH = BY_NAME["cuLaunchKernel"][0]
SECOND = 1_000_000_000


def threads(*on_core: float) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    rows = np.zeros(len(on_core), THREAD_TIME)
    rows["pid"], rows["feeder"] = 100, True
    rows["tid"] = range(100, 100 + len(on_core))
    for row, share in zip(rows, on_core, strict=True):
        row["ns"][Bucket.HOST_CPU] = int(share * SECOND)
        row["ns"][Bucket.LOCK_WAIT] = SECOND - int(share * SECOND)
    return rows


@pytest.mark.parametrize(
    ("on_core", "number"), [((1.0,), 1.0), ((0.6, 0.4), 1.0), ((0.2, 0.1), 1.0), ((1.0, 0.9, 0.6), 2.5)]
)
def test_how_many_threads_run_at_once(on_core: tuple[float, ...], number: float) -> None:
    assert at_once(threads(*on_core)) == {100: pytest.approx(number)}


def test_threads_that_feed_no_gpu_do_not_count() -> None:
    rows = threads(1.0, 1.0)
    rows["feeder"] = False, True
    assert at_once(rows) == {100: 1.0}


def test_however_small_a_budget_is_stacks_stay_within_their_part_of_it() -> None:
    assert Detail(walk_share=0.0025).walk_share_in_kernel == 164
    assert Detail(walk_share=1e-7).walk_share_in_kernel == 1
    assert Detail().walk_share_in_kernel == 0  # as it comes


class Memory:
    """What the kernel side shares: counters of one thread, in memory that can be mapped."""

    def __init__(self) -> None:
        self.costs, self.hits = os.memfd_create("costs"), os.memfd_create("hits")
        os.ftruncate(self.costs, -(-THREADS * THREAD_COST.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE)
        os.ftruncate(self.hits, mmap.PAGESIZE)
        self.row = np.frombuffer(mmap.mmap(self.costs, 0), THREAD_COST, 1)
        self.by_operation = np.frombuffer(mmap.mmap(self.hits, 0), np.uint64, OPERATIONS)
        self.row["pid"] = self.row["tid"] = 100


class Kernel:
    """The kernel side, and a job that calls one function."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.maps = {"thread_costs": self.memory.costs, "op_hits": self.memory.hits}
        self.meters: dict[int, int] = {}
        self.closed: set[int] = set()
        self.cycled: set[int] = set()
        self.number = 0

    def read_threads(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        return np.zeros(0, THREAD_TOTALS)

    def set_meter(self, operation: int, meter: int) -> None:
        self.meters[operation] = meter

    def set_variants(self, variants: dict[int, int]) -> None: ...

    def set_watched(
        self, operations: Iterable[int], every: int = 1, closed: bool = False, cycled: bool = False
    ) -> None:
        for operation in operations:
            for names, is_so in ((self.closed, closed), (self.cycled, cycled)):
                (names.add if is_so else names.discard)(operation)

    def watch(self, number: int, detail: Detail, blind: bool) -> None:
        self.number, self.blind = number, blind

    def call(self, count: int) -> None:
        if LAUNCH not in self.closed:
            self.memory.row["timed"][0][self.meters.get(LAUNCH, 0)] += np.uint32(count)
            self.memory.by_operation[LAUNCH] += np.uint64(0 if LAUNCH in self.meters else count)


class Links:
    """A session: what is apart, and whether it is on."""

    def __init__(self) -> None:
        self.apart: frozenset[int] = frozenset()
        self.on = True

    def set_apart(self, operations: frozenset[int], paths: object, now_ns: int) -> dict[int, int]:
        self.apart, self.on = operations, True
        return {}

    def retire(self, now_ns: int) -> None: ...

    def take_off(self) -> None:
        self.on = False

    def put_on(self, paths: object) -> None:
        self.on = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [SECOND]
    monkeypatch.setattr("ingero.governor.governor.time.monotonic_ns", lambda: now[0])
    monkeypatch.setattr("ingero.governor.governor.time.sleep", lambda _seconds: None)
    return now


@pytest.mark.parametrize("seed", range(6))
def test_a_hot_function_goes_on_and_off_and_all_is_watched_again_when_it_rests(
    clock: list[int], seed: int
) -> None:
    kernel, links = Kernel(), Links()
    cost = HitCost("session", 1600.0, 1000.0, 850.0, 300.0)
    governor = Governor(cast(Any, kernel), cast(Any, links), cost, 0.02, dict, random.Random(seed))
    states = set()
    for _ in range(300):  # three seconds at 100,000 launches a second
        clock[0] += 10_000_000
        kernel.call(1000)
        governor.tick(clock[0])
        if LAUNCH in kernel.cycled:
            states.add(links.on)
            assert (LAUNCH in kernel.closed) != links.on
            assert kernel.number % 2 == (not links.on)
    assert links.apart == {LAUNCH}
    assert states == {True, False}
    while links.on:
        clock[0] += 10_000_000
        kernel.call(1000)
        governor.tick(clock[0])
    governor._watched(window(), kernel.read_threads(), clock[0])  # a window ends while it is off
    governor._controller.watch = ALL  # type: ignore[union-attr]
    governor._apply(Watch(True, 16, frozenset({LAUNCH}), frozenset({LAUNCH}), 0.02), ALL)
    lacking = governor._watched(window(), kernel.read_threads(), clock[0])
    assert lacking is not None  # and the next one lacks its beginning
    assert lacking.operations == {LAUNCH}
    for _ in range(3000):  # and half a minute at a hundred
        clock[0] += 10_000_000
        kernel.call(1)
        governor.tick(clock[0])
    assert governor.watch == ALL
    assert (links.apart, links.on, kernel.closed, kernel.cycled) == (frozenset(), True, set(), set())
    assert kernel.number % 2 == 0
    governor.close()


STEP = {"cuLaunchKernel": 60, "cuEventQuery": 30, "cuMemcpyHtoDAsync_v2": 1, "cuEventRecord": 2}
NUMBERS = {name: BY_NAME[name][0] for name in STEP}


class Loop:
    """A job whose every step of ten milliseconds makes the same calls, seen as far as its probes are on."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.made: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()

    def step(self) -> None:
        memory, meters = self.kernel.memory, self.kernel.meters
        for name, count in STEP.items():
            self.made[name] += count
            if NUMBERS[name] not in self.kernel.closed:
                self.counted[name] += count
                memory.row["timed"][0][meters.get(NUMBERS[name], 0)] += np.uint32(count)
                memory.by_operation[NUMBERS[name]] += np.uint64(0 if NUMBERS[name] in meters else count)

    def window(self, start_ns: int) -> Window:
        rows = np.zeros(len(STEP), OPERATION)
        for row, name in zip(rows, STEP, strict=True):
            row["pid"], row["op"], row["count"] = 100, NUMBERS[name], self.counted[name]
        self.counted.clear()
        return window(start_ns, operations=rows[rows["count"] > 0], threads=threads(0.8))


@pytest.mark.parametrize("seed", range(12))
def test_counts_are_within_their_error_from_the_first_window_on(clock: list[int], seed: int) -> None:
    """Functions get meters of their own, and are watched less, amid the first window."""
    job, links = Loop(), Links()
    cost = HitCost("session", 1600.0, 1000.0, 850.0, 300.0)
    governor = Governor(cast(Any, job.kernel), cast(Any, links), cost, 0.01, dict, random.Random(seed))
    estimated = 0
    for _ in range(5):
        start_ns = clock[0]
        job.made.clear()
        for _ in range(100):
            clock[0] += 10_000_000
            job.step()
            governor.tick(clock[0])
        made = job.window(start_ns)
        governor.complete(made, job.kernel.read_threads(), clock[0])
        for row in made.operations:
            name = next(name for name, number in NUMBERS.items() if number == row["op"])
            assert abs(int(row["count"]) - job.made[name]) <= row["count_error"], name
            estimated += bool(row["estimated"])
    assert estimated >= 4
    governor.close()


class Crowd(Kernel):
    """Another process makes the calls every time."""

    def read_threads(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        row = np.zeros(1, THREAD_TOTALS)
        self.memory.row["pid"] = self.memory.row["tid"] = self.memory.row["pid"] + 1
        row["h"]["pid"] = row["h"]["tid"] = self.memory.row["pid"]
        row["h"]["flags"] = int(HeaderFlag.H_FEEDER)
        row["acc"][0][Bucket.HOST_CPU] = SECOND // 2
        return row


def test_nothing_is_kept_of_processes_that_come_and_go_while_all_is_watched(clock: list[int]) -> None:
    kernel = Crowd()
    cost = HitCost("session", 1600.0, 1000.0, 850.0, 300.0)
    governor = Governor(cast(Any, kernel), cast(Any, Links()), cost, 0.02, dict)
    for _ in range(50):
        clock[0] += SECOND
        kernel.call(1)
        governor.tick(clock[0])
        governor.complete(window(), kernel.read_threads(), clock[0])
    assert governor.watch == ALL
    assert len(governor._period_cpu_ns) <= 1
    governor.close()
