"""What one process did, added up for monitoring, who it is, and how many may have series of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from ingero import units
from ingero.model import histogram
from ingero.model.metrics import OTHER, SeriesLimits
from ingero.model.window import BUCKETS, Container, Process

# What one process did, added up for monitoring, and who it is.
#
# A process whose number, name or container changes is another one: its series end and new
# ones begin. Times are monotonic in here; the meter turns them into wall time.

NAME = 120  # characters of a label's value
CONTAINERS = 1024
IDLE_NS = 30_000_000_000  # an operation not called for so long leaves its seat to one that is: start-up ends
Name = tuple[str, str]  # layer, operation


@dataclass
class OperationCalls:
    """One operation of one process."""

    name: Name
    start_ns: int
    count: int = 0
    errors: int = 0
    bytes: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    slots: histogram.Counts = field(default_factory=lambda: np.zeros(histogram.SLOTS, np.uint64))

    def add(self, count: int, errors: int, size: int, sum_ns: int, max_ns: int) -> None:
        self.count += count
        self.errors += errors
        self.bytes += size
        self.sum_ns += sum_ns
        self.max_ns = max(self.max_ns, max_ns)


@dataclass(frozen=True)
class SeriesLabels:
    """The labels of a process: first those every series has, then those of its info."""

    labels: tuple[str, ...]  # as model.metrics.PROCESS
    more: tuple[str, ...] = ("", "", "", "")


NOBODY = SeriesLabels(("", OTHER, "", "", ""))


class ProcessSeries:
    """One process, or all that found no seat."""

    def __init__(self, who: SeriesLabels, start_ns: int, limits: SeriesLimits) -> None:
        self.who, self.start_ns = who, start_ns
        self.time_ns = np.zeros(BUCKETS, np.uint64)
        self.idle_ns = 0
        self.held_ns = 0.0
        self.gpu_busy_ns: float | None = None
        self.lost_ns: dict[str, float] = {}  # of GPUs, by kind of finding
        self.spare_ns = 0.0  # GPUs were idle, and no finding says why
        self.money = 0.0  # for GPUs held; NaN: one of them has no price
        self.lost_money: dict[str, float] = {}
        self.allocated_bytes: int | None = None
        self.copied_bytes: dict[str, int] = {}
        self.collectives: dict[str, tuple[int, int]] = {}  # by name: calls, bytes; there are a dozen
        self._calls: Seats[Name, OperationCalls] = Seats(limits.operations, IDLE_NS, OperationCalls)
        self._others: dict[str, OperationCalls] = {}  # by layer

    def calls_of(self, name: Name, now_ns: int) -> OperationCalls:
        found = self._calls.take(name, now_ns)
        if found is None:
            layer = name[0]
            found = self._others.setdefault(layer, OperationCalls((layer, OTHER), now_ns))
        return found

    def calls(self) -> list[OperationCalls]:
        return [*self._calls, *self._others.values()]


class People:
    """Who is behind a process id."""

    def __init__(self) -> None:
        self._containers: dict[int, Container] = {}
        self._known: dict[int, SeriesLabels] = {}
        self._processes: dict[int, Process] = {}  # names of their containers may come later

    def meet(self, processes: list[Process], containers: list[Container]) -> list[int]:
        """Learn; the ids that now mean somebody else."""
        for container in containers:
            self._containers[container.cgroup_id] = container
            if len(self._containers) > CONTAINERS:
                self._containers.pop(next(iter(self._containers)))
        changed = []
        renamed = {container.cgroup_id for container in containers}
        again = [each for each in self._processes.values() if each.cgroup_id in renamed] if renamed else []
        for process in (*again, *processes):
            now = who(process, self._containers.get(process.cgroup_id))
            if process.end_ns is None and self._known.get(process.pid) != now:
                self._known[process.pid] = now
                self._processes[process.pid] = process
                changed.append(process.pid)
        return changed

    def who(self, pid: int) -> SeriesLabels:
        return self._known.get(pid) or SeriesLabels((str(pid), "", "", "", ""))

    def forget_all_but(self, pids: set[int]) -> None:
        """Called now and then: people who left are not remembered for ever."""
        self._known = {pid: known for pid, known in self._known.items() if pid in pids}
        self._processes = {pid: known for pid, known in self._processes.items() if pid in pids}

    def __len__(self) -> int:
        return len(self._known)


def who(process: Process, container: Container | None) -> SeriesLabels:
    """The labels of a process; what comes from it is cleaned and capped."""
    found = container or Container(0, "")
    names = (process.comm, found.container_id, found.pod, found.namespace)
    return SeriesLabels(
        (str(process.pid), *(units.clean(name or "", NAME) for name in names)),
        (
            "" if process.rank is None else str(process.rank),
            "" if process.world_size is None else str(process.world_size),
            found.runtime or "",
            units.clean(dict(process.labels).get("job") or found.job or "", NAME),
        ),
    )


# A bounded number of series, each counted from when it got its seat.
#
# Whoever finds no seat is counted with `other`. A seat whose holder did nothing for a
# while is free again; what was counted in it is not moved, so nothing counted ever
# shrinks or is counted twice: a series ends, and a later one begins at zero.


K = TypeVar("K")
V = TypeVar("V")


class Seats(Generic[K, V]):
    """At most `limit` keys at a time with a value of their own."""

    def __init__(self, limit: int, keep_ns: int, make: Callable[[K, int], V]) -> None:
        self._limit, self._keep_ns, self._make = limit, keep_ns, make
        self._held: dict[K, tuple[V, int]] = {}  # the one that did something last stands last

    def take(self, key: K, now_ns: int) -> V | None:
        """The key's own value; None where no seat is free."""
        found = self._held.pop(key, None)
        if found is None and len(self._held) >= self._limit:
            self.leave_idle(now_ns)
            if len(self._held) >= self._limit:
                return None
        value = found[0] if found else self._make(key, now_ns)
        self._held[key] = value, now_ns
        return value

    def leave(self, key: K) -> None:
        self._held.pop(key, None)

    def leave_idle(self, now_ns: int) -> None:
        """Nobody who did nothing for long stays."""
        while self._held:
            key, (_, last_ns) = next(iter(self._held.items()))
            if now_ns - last_ns <= self._keep_ns:
                return
            del self._held[key]

    def get(self, key: K) -> V | None:
        found = self._held.get(key)
        return found[0] if found else None

    def __iter__(self) -> Iterator[V]:
        return (value for value, _ in self._held.values())

    def __len__(self) -> int:
        return len(self._held)
