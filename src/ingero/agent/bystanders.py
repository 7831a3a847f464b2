"""Who the others are: processes that are not traced but took time from one that is,
used a disk or a GPU, or sent it packets that were lost.

The kernel names them by PID and command name only; whoever mattered in a window is
looked up in /proc once, and again when it has become another program. One that was
gone by then stays a PID and a name. The agent is never among them.
"""

from __future__ import annotations

import os
from collections.abc import Container as Members
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.discover import processes
from ingero.model.layout import WakerKind
from ingero.model.window import Container, Process, Window

MATTERS_NS = 5_000_000  # within one window
MAX_NEW = 20  # looked up per window
MAX_LOOKED_AT = 100  # a glance at who they are now, per window
MAX_REMEMBERED = 4096  # processes, and containers: more are looked up and told again


class Bystanders:
    """Remembers whom it has met: (pid, start) and the name at that time."""

    def __init__(self, readers: Asking) -> None:
        self._readers = readers
        self._met: dict[tuple[int, int], str] = {}
        self._containers: dict[int, None] = {}
        self._mounts = processes.cgroup_mounts()

    def meet(self, window: Window, targets: Members[int]) -> tuple[list[Process], list[Container]]:
        """The bystanders of this window nobody has met before, with their containers."""
        found: list[Process] = []
        strangers: dict[int, Container] = {}
        for pid in who_mattered(window)[:MAX_LOOKED_AT]:
            if len(found) == MAX_NEW:
                break
            if pid in targets or pid == os.getpid() or not self._is_new(pid):
                continue
            known = self._read(pid)
            if known is not None:
                found.append(replace(known[0], target=False))
                strangers[known[1].cgroup_id] = known[1]
        new = [each for number, each in strangers.items() if number not in self._containers]
        self._containers |= dict.fromkeys(strangers)
        _drop_oldest(self._containers)
        return found, new

    def _read(self, pid: int) -> tuple[Process, Container] | None:
        try:
            return self._readers.ask(Reading.process, pid)
        except UnreadError:
            return processes.read_process_and_container(pid, self._mounts, with_memory=False)

    def _is_new(self, pid: int) -> bool:
        stat = processes.read_stat(pid)
        if stat is None or stat.state in "ZX":  # nothing is left of it but its number
            return False
        name = "" if stat.kernel else stat.comm  # a worker of the kernel is renamed with every task
        if self._met.get((pid, stat.start_ns)) == name:
            return False
        self._met[pid, stat.start_ns] = name
        _drop_oldest(self._met)
        return True


def _drop_oldest(remembered: dict[Any, Any]) -> None:
    for old in list(islice(remembered, max(0, len(remembered) - MAX_REMEMBERED))):
        del remembered[old]


def who_mattered(window: Window) -> list[int]:
    """PIDs of culprits, wakers, users of disks and cards, and senders to a target: most time first."""
    culprits = window.culprits[window.culprits["throttled"] == 0]
    wakers = window.wakers[window.wakers["kind"] == WakerKind.WAKER_TASK]
    on_cards = np.array([each.pid for each in window.gpus.processes], np.uint32)
    others = np.concatenate([window.tcp["h"]["pid"], on_cards])
    pids = [culprits["pid"], wakers["waker_pid"], window.io["pid"], others]
    ns = [culprits["ns"], wakers["ns"], window.io["ns"], np.full(len(others), MATTERS_NS, np.uint64)]
    return _largest(np.concatenate(pids), np.concatenate(ns))


def _largest(pids: NDArray[np.uint32], ns: NDArray[np.uint64]) -> list[int]:
    distinct, inverse = np.unique(pids, return_inverse=True)
    sums = np.bincount(inverse, ns.astype(np.float64), len(distinct))
    order = np.argsort(-sums, kind="stable")
    chosen = distinct[order][(sums[order] >= MATTERS_NS) & (distinct[order] > 0)]
    return [int(pid) for pid in chosen]
