"""What processes were started with, as they said it themselves at their exec or first call.

/proc has nothing left of a process that lived for milliseconds, or that came and went while
the agent was attaching to a large library. It comes in parts and is kept until it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ingero.discover.processes import printable, same_start
from ingero.model.window import Process, Records

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
