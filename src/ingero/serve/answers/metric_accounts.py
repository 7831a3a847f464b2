"""What one process did, added up for monitoring, and who it is.

A process whose number, name or container changes is another one: its series end and new
ones begin. Times are monotonic in here; the meter turns them into wall time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ingero import units
from ingero.model import histogram
from ingero.model.metrics import OTHER, Limits
from ingero.model.window import BUCKETS, Container, Process
from ingero.serve.answers.metric_seats import Seats

NAME = 120  # characters of a label's value
CONTAINERS = 1024
IDLE_NS = 30_000_000_000  # an operation not called for so long leaves its seat to one that is: start-up ends
Name = tuple[str, str]  # layer, operation


@dataclass
class Calls:
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
class Who:
    """The labels of a process: first those every series has, then those of its info."""

    labels: tuple[str, ...]  # as model.metrics.PROCESS
    more: tuple[str, ...] = ("", "", "", "")


NOBODY = Who(("", OTHER, "", "", ""))


class Account:
    """One process, or all that found no seat."""

    def __init__(self, who: Who, start_ns: int, limits: Limits) -> None:
        self.who, self.start_ns = who, start_ns
        self.time_ns = np.zeros(BUCKETS, np.uint64)
        self.idle_ns = 0
        self.held_ns = 0.0
        self.gpu_busy_ns: float | None = None
        self.allocated_bytes: int | None = None
        self.copied_bytes: dict[str, int] = {}
        self.collectives: dict[str, tuple[int, int]] = {}  # by name: calls, bytes; there are a dozen
        self._calls: Seats[Name, Calls] = Seats(limits.operations, IDLE_NS, Calls)
        self._others: dict[str, Calls] = {}  # by layer

    def calls_of(self, name: Name, now_ns: int) -> Calls:
        found = self._calls.take(name, now_ns)
        if found is None:
            layer = name[0]
            found = self._others.setdefault(layer, Calls((layer, OTHER), now_ns))
        return found

    def calls(self) -> list[Calls]:
        return [*self._calls, *self._others.values()]


class People:
    """Who is behind a process id."""

    def __init__(self) -> None:
        self._containers: dict[int, Container] = {}
        self._known: dict[int, Who] = {}
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

    def who(self, pid: int) -> Who:
        return self._known.get(pid) or Who((str(pid), "", "", "", ""))

    def forget_all_but(self, pids: set[int]) -> None:
        """Called now and then: people who left are not remembered for ever."""
        self._known = {pid: known for pid, known in self._known.items() if pid in pids}
        self._processes = {pid: known for pid, known in self._processes.items() if pid in pids}

    def __len__(self) -> int:
        return len(self._known)


def who(process: Process, container: Container | None) -> Who:
    """The labels of a process; what comes from it is cleaned and capped."""
    found = container or Container(0, "")
    names = (process.comm, found.container_id, found.pod, found.namespace)
    return Who(
        (str(process.pid), *(units.clean(name or "", NAME) for name in names)),
        (
            "" if process.rank is None else str(process.rank),
            "" if process.world_size is None else str(process.world_size),
            found.runtime or "",
            units.clean(dict(process.labels).get("job") or found.job or "", NAME),
        ),
    )
