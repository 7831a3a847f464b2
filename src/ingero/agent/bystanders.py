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
from ingero.agent.targets import Targets
from ingero.discover import processes, sockets
from ingero.discover.sockets import End, ListenerRound
from ingero.model.layout import WakerKind
from ingero.model.window import Container, Process, Records, Window

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


# Retransmits happen in an interrupt; whose they are is found by the socket's inode.
#
# Only the sender retransmits, but it is often the receiver that waits: a target at the
# other end on this machine is named too, and then the sender may be anybody. Sockets
# with no target at either end are none of this trace's business; a socket nobody holds
# any more (an orphan, still sending) stays, with no owner.


# Looking through every process is dear: once per window, and only for what targets do not hold.
MAX_STRANGERS = 64
MAX_NAMESPACES = 16
Ends = tuple[End, End]


def name_owners(retransmits: Records, targets: Targets) -> Records:
    """The rows that belong here, with pid, thread and name of the owner, and the target at the other end."""
    if not len(retransmits):
        return retransmits
    inodes = set(retransmits["inode"].tolist())
    held = sockets.owners(inodes, targets.live)
    strangers = inodes - set(held)
    foreign = sockets.owners(list(strangers)[:MAX_STRANGERS], processes.list_pids()) if strangers else {}
    peers = _peers({_mirrored(row) for row in retransmits}, list(targets.live))
    kept = []
    for row in retransmits:
        inode, peer = int(row["inode"]), peers.get(_mirrored(row), 0)
        if inode in foreign and not peer:
            continue
        target = targets.live.get(held.get(inode, 0))
        _name(row, target.process if target else _stranger(foreign.get(inode, 0)))
        row["peer_pid"] = peer
        kept.append(row)
    return np.array(kept, retransmits.dtype) if kept else retransmits[:0]


def _stranger(pid: int) -> Process | None:
    return processes.read_process(pid, with_memory=False)


def _name(row: np.void, owner: Process | None) -> None:
    if owner is not None:
        header = row["h"]
        header["pid"] = header["tid"] = owner.pid
        header["comm"] = owner.comm.encode()[:15]
        header["cgroup_id"] = owner.cgroup_id


def _mirrored(row: np.void) -> Ends:
    """The connection as its other end has it: (local, remote) there."""
    size = 16 if row["family"] == 10 else 4
    here, there = ((bytes(row[name][:size])) for name in ("saddr", "daddr"))
    return (there, int(row["dport"])), (here, int(row["sport"]))


def _peers(wanted: set[Ends], pids: list[int]) -> dict[Ends, int]:
    """Which of these processes holds each end; every network namespace is looked through once."""
    inside: dict[int, list[int]] = {}
    for pid in pids:
        inside.setdefault(sockets.network_namespace(pid), []).append(pid)
    inside.pop(0, None)
    found: dict[Ends, int] = {}
    for members in list(inside.values())[:MAX_NAMESPACES]:
        ends = sockets.find_connections(members[0], wanted)
        owners = sockets.owners(ends.values(), members)
        found.update((end, owners[inode]) for end, inode in ends.items() if inode in owners)
    return found


# Which traced processes serve others; looked at soon after they appear, then now and then.


EVERY_WINDOWS = 10
MAX_LOOKS = 64  # per window


class Servers:
    """Counts the windows each target has been here for."""

    def __init__(self) -> None:
        self._windows: dict[int, int] = {}

    def look(self, targets: Targets) -> None:
        """Once per window, before the news of processes are taken."""
        self._windows = {pid: self._windows.get(pid, 0) + 1 for pid in targets.live}
        due = [pid for pid, windows in self._windows.items() if is_due(windows)]
        here = ListenerRound()
        for pid in due[:MAX_LOOKS]:
            target = targets.live[pid]
            listens = here.listens(pid)
            if listens is not None and listens != target.process.listens:
                target.process = replace(target.process, listens=listens)
                targets.note(target.process)


def is_due(windows: int) -> bool:
    """After 1, 2, 4 and 8 windows, because servers take a moment to begin; then every ten."""
    if windows < EVERY_WINDOWS:
        return windows & (windows - 1) == 0
    return windows % EVERY_WINDOWS == 0
