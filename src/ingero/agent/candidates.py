"""Who may become a target: what the flags admit, what processes said of themselves when they started, and
who is looked at when there is time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ingero.discover import containers, processes
from ingero.discover.processes import printable, same_start
from ingero.errors import TargetError
from ingero.model.options import TraceOptions
from ingero.model.window import Container, Process, Records

# Who is to be traced: the flags of `trace` as a question about a process.


class Scope:
    """Answers whether a process found now or later belongs to the trace."""

    def __init__(self, options: TraceOptions) -> None:
        self._uid = processes.user_id(options.user) if options.user else None
        self._container = options.container
        self._cgroup = _below_mount(options.cgroup) if options.cgroup else None
        self.pids = options.pids
        self.fixed = bool(options.pids or options.command)  # only these and their descendants

    @property
    def everything(self) -> bool:
        """No filter: any process that makes a traced call is a target."""
        return not (self.fixed or self._uid is not None or self._container or self._cgroup)

    def admits(self, process: Process, container: Container) -> bool:
        if self.fixed:
            return False  # announced one by one, and by the kernel for their children
        if self._uid is not None and process.uid != self._uid:
            return False
        if self._container and not containers.belongs(container, self._container):
            return False
        path = container.cgroup_path
        return not (
            self._cgroup and path != self._cgroup and not path.startswith(self._cgroup.rstrip("/") + "/")
        )

    def named(self) -> list[int]:
        """The processes asked for by number, with their descendants; they must exist."""
        found: list[int] = []
        for pid in self.pids:
            stat = processes.read_stat(pid)
            if stat is None:
                raise processes.missing_process(pid)
            if stat.kernel:
                raise TargetError(
                    f"process {pid} ({stat.comm}) is a thread of the kernel",
                    hint="It makes no CUDA calls. Name the process of the job; `ingero check` lists them.",
                )
            found.extend([pid, *processes.descendants(pid)])
        return list(dict.fromkeys(found))


def _below_mount(path: Path) -> str:
    """A cgroup given as a directory or as it stands in /proc/PID/cgroup."""
    for mount in processes.cgroup_mounts():
        if str(path).startswith(mount.point.rstrip("/") + "/"):
            return "/" + str(path)[len(mount.point) :].strip("/")
    if not str(path).startswith("/"):
        raise TargetError(f"no such cgroup: {path}", hint="Give its path below /sys/fs/cgroup.")
    return str(path)


# What processes were started with, as they said it themselves at their exec or first call.
#
# /proc has nothing left of a process that lived for milliseconds, or that came and went while
# the agent was attaching to a large library. It comes in parts and is kept until it is asked for.


MAX_KEPT = 256  # processes; an environment is 64 KiB at most


@dataclass(slots=True)
class Started:
    """One start of a program."""

    start_ns: int
    parent_pid: int
    uid: int
    arguments: bytes = b""
    parts: list[bytes] = field(default_factory=list)
    last_part: int = -1

    @property
    def environment(self) -> bytes:
        """As far as it came: an entry that is cut would say something else."""
        whole, end, _ = b"".join(self.parts).rpartition(b"\0")
        return whole + end


class StartedPrograms:
    """The latest start of each process."""

    def __init__(self) -> None:
        self._by_pid: dict[int, Started] = {}

    def hear(self, records: Records) -> None:
        texts, size = (
            records["text"].tobytes(),
            records.dtype["text"].itemsize,
        )  # one of them ends at its last zero
        for at, record in enumerate(records):
            pid, part, length = int(record["h"]["pid"]), int(record["part"]), int(record["length"])
            one = self._by_pid.get(pid)
            start_ns = int(record["process_start_ns"])
            if one is None or one.start_ns != start_ns or part <= one.last_part:
                self._by_pid.pop(pid, None)
                if len(self._by_pid) >= MAX_KEPT:
                    del self._by_pid[next(iter(self._by_pid))]
                one = Started(start_ns, int(record["parent_pid"]), int(record["uid"]))
                self._by_pid[pid] = one
            text = texts[at * size :][:length]
            if part == 0:
                one.arguments = text
            elif length and part == len(one.parts) + 1:  # none is missing before it
                one.parts.append(text)
            one.last_part = part

    def of(self, process: Process) -> Started | None:
        one = self._by_pid.get(process.pid)
        return one if one and same_start(one.start_ns, process.start_ns) else None

    def forget(self, pid: int) -> None:
        self._by_pid.pop(pid, None)


def told_by(record: np.void) -> Process:
    """A process of which only the kernel's word is left."""
    return Process(
        pid=int(record["h"]["pid"]),
        start_ns=int(record["process_start_ns"]),
        comm=printable(bytes(record["h"]["comm"])),
        cmdline="",
        cgroup_id=int(record["h"]["cgroup_id"]),
        uid=None,
    )


# What the loop does a part of at a time: it has other duties, and the rest waits.
#
# Processes that mapped a library, to be looked at; and new targets, whose children have to be looked for
# because they may have been born before the kernel side was told of their parents.


MAX_EXAMINED, EXAMINING_NS = 64, 250_000_000  # at a time
CHILDREN_SHARE = 10  # one ns in so many may go into looking through all processes for children


class Waiting:
    """Each process once, in the order they came."""

    def __init__(self) -> None:
        self._pids: dict[int, None] = {}

    def some(self, more: Iterable[int]) -> Iterator[int]:
        """As many as there is time for, with these behind those that wait already."""
        self._pids.update(dict.fromkeys(more))
        until_ns = time.monotonic_ns() + EXAMINING_NS
        for pid in list(self._pids)[:MAX_EXAMINED]:
            if time.monotonic_ns() >= until_ns:
                return
            del self._pids[pid]
            yield pid


class Children:
    """Of new targets: found by one look at all processes, and not too often."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._not_before_ns = 0

    def born_to(self, pid: int) -> None:
        self._parents.append(pid)

    def find(self) -> list[int]:
        began_ns = time.monotonic_ns()
        if not self._parents or began_ns < self._not_before_ns:
            return []
        found = processes.descendants(*self._parents)
        self._parents = []
        now_ns = time.monotonic_ns()
        self._not_before_ns = now_ns + CHILDREN_SHARE * (now_ns - began_ns)
        return found
