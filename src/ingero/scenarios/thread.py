"""A thread that never ran: what it did, nanosecond after nanosecond, as the probes would have seen it.

Time passes only by spending it, so the buckets sum to the time by construction. A
thread whose core is shared loses it after its time slice, wherever it is then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import Bucket
from ingero.model.operations import Operation
from ingero.model.window import BUCKETS
from ingero.scenarios.code import ProgramPlace
from ingero.scenarios.scenario import MS

SLICE_NS = 3 * MS  # what the scheduler gives a task before the next one's turn
RECORDED_NS = MS  # shorter waits are accounted, and get no record

Ints = NDArray[np.int64]
SPENT = np.dtype(
    [
        ("at", "<i8"),
        ("ns", "<i8"),
        ("bucket", "<i8"),
        ("gap", "?"),
        ("who", "<i8"),
        ("place", "<i8"),
        ("op", "<i8"),
    ]
)


@dataclass
class ScenarioCalls:
    """Calls of one operation, in order."""

    operation: Operation
    start_ns: list[Ints] = field(default_factory=list)
    duration_ns: list[Ints] = field(default_factory=list)
    split_ns: list[Ints] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)  # of each entry above
    places: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Wait:
    """Off the core for long enough to get a record; `blocked_ns` and then runnable."""

    start_ns: int
    blocked_ns: int
    runqueue_ns: int
    bucket: Bucket
    waker: int
    op: int
    place: int


class Thread:
    """One thread of the story."""

    def __init__(self, pid: int, start_ns: int, random: np.random.Generator) -> None:
        self.pid = pid
        self.now = start_ns
        self.start_ns = start_ns
        self.calls: dict[int, ScenarioCalls] = {}
        self.waits: list[Wait] = []
        self.late: list[tuple[int, int]] = []  # when, and for how long after the GPU had finished
        self.rivals: tuple[int, ...] = ()  # who shares the core now
        self.place = ProgramPlace.NOWHERE  # in its program
        self.idle = False  # the GPU has done what it was given, and got nothing since
        self._random = random
        self._spent: list[NDArray[np.void]] = []
        self._left_ns = SLICE_NS
        self._inside = 0

    def spent(self) -> NDArray[np.void]:
        return np.concatenate(self._spent) if self._spent else np.zeros(0, SPENT)

    def spend(self, bucket: Bucket, ns: int, who: int = 0) -> None:
        if ns <= 0:
            return
        row = (self.now, ns, bucket, self.idle, who, self.place, self._inside)
        self._spent.append(np.array([row], SPENT))
        self.now += ns

    def run(self, bucket: Bucket, ns: int) -> None:
        """On a core, unless somebody else's turn comes."""
        while self.rivals and ns > self._left_ns:
            ns -= self._left_ns
            self.spend(bucket, self._left_ns)
            self.lose_core()
        self.spend(bucket, ns)
        self._use(ns)

    def _use(self, ns: int) -> None:
        self._left_ns = self._left_ns - ns if self.rivals else SLICE_NS

    def lose_core(self) -> int:
        """Everybody else on the core has a turn; for how long."""
        start = self.now
        for pid in self.rivals:
            self.spend(Bucket.RUNQUEUE, int(SLICE_NS * self._random.uniform(0.8, 1.15)), pid)
        self._left_ns = SLICE_NS
        self._record(start, 0, self.now - start, Bucket.RUNQUEUE, 0)
        return self.now - start

    def block(self, bucket: Bucket, ns: int, waker: int) -> None:
        """Off the core until somebody ends it; then there may be somebody on the core."""
        start = self.now
        self.spend(bucket, ns, waker)
        woken = self.now
        if self.rivals and self._random.random() < 0.5:
            self.spend(Bucket.RUNQUEUE, int(SLICE_NS * self._random.uniform(0.2, 0.9)), self.rivals[0])
        self._record(start, ns, self.now - woken, bucket, waker)

    def _record(self, start: int, blocked: int, runqueue: int, bucket: Bucket, waker: int) -> None:
        if blocked + runqueue >= RECORDED_NS:
            self.waits.append(Wait(start, blocked, runqueue, bucket, waker, self._inside, self.place))

    # --- calls ------------------------------------------------------------------------

    def call(self, operation: Operation, ns: int, size: int = 0) -> None:
        """A call that computes."""
        start, at, self._inside = self.now, len(self._spent), operation.number
        self.run(Bucket.CUDA_CPU, ns)
        self._add(operation, start, at, size)

    def wait_for_gpu(self, operation: Operation, done_ns: int) -> None:
        """A call that spins until the GPU is done."""
        start, at, self._inside = self.now, len(self._spent), operation.number
        self.spend(Bucket.GPU_WAIT, 2_000)
        while self.now < done_ns:
            if not self.rivals or done_ns - self.now <= self._left_ns:
                self.run(Bucket.GPU_WAIT, done_ns - self.now)
                break
            self.spend(Bucket.GPU_WAIT, self._left_ns)
            away = self.lose_core()
            if self.now >= done_ns:  # the probes cannot tell when within its absence: half of it
                self.late.append((self.now, away // 2))
        self._add(operation, start, at, 0)
        self.idle = True

    def _add(self, operation: Operation, start: int, at: int, size: int) -> None:
        split = np.zeros((1, BUCKETS), np.int64)
        for part in self._spent[at:]:
            split[0, part["bucket"][0]] += part["ns"][0]
        took = np.array([self.now - start], np.int64)
        self.add_calls(operation, np.array([start], np.int64), took, split, size)
        self._inside = 0

    def add_calls(self, operation: Operation, start: Ints, took: Ints, split: Ints, size: int) -> None:
        calls = self.calls.setdefault(operation.number, ScenarioCalls(operation))
        calls.start_ns.append(start)
        calls.duration_ns.append(took)
        calls.split_ns.append(split)
        calls.bytes.append(size)
        calls.places.append(self.place)

    def launch(self, operation: Operation, inside_ns: Ints, between_ns: Ints) -> None:
        """Many short calls with a little Python after each; the core is lost between two."""
        done = 0
        while done < len(inside_ns):
            ends = np.cumsum(inside_ns[done:] + between_ns[done:])
            fit = int(np.searchsorted(ends, self._left_ns)) + 1 if self.rivals else len(ends)
            self._launch_some(operation, inside_ns[done : done + fit], between_ns[done : done + fit])
            done += fit
            if self.rivals and self._left_ns <= 0:
                self.lose_core()

    def _launch_some(self, operation: Operation, inside_ns: Ints, between_ns: Ints) -> None:
        both = np.stack([inside_ns, between_ns], axis=1).reshape(-1)
        rows = np.zeros(len(both), SPENT)
        rows["at"], rows["ns"] = self.now + np.cumsum(both) - both, both
        rows["bucket"] = np.tile([Bucket.CUDA_CPU, Bucket.HOST_CPU], len(inside_ns))
        rows["op"], rows["place"] = np.tile([operation.number, 0], len(inside_ns)), self.place
        self._spent.append(rows)
        split = np.zeros((len(inside_ns), BUCKETS), np.int64)
        split[:, Bucket.CUDA_CPU] = inside_ns
        self.add_calls(operation, rows["at"][::2].copy(), inside_ns, split, 0)
        self.now += int(both.sum())
        self._use(int(both.sum()))
