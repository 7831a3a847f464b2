"""Retransmits happen in an interrupt; whose they are is found by the socket's inode.

Only the sender retransmits, but it is often the receiver that waits: a target at the
other end on this machine is named too, and then the sender may be anybody. Sockets
with no target at either end are none of this trace's business; a socket nobody holds
any more (an orphan, still sending) stays, with no owner.
"""

from __future__ import annotations

import numpy as np

from ingero.agent.targets import Targets
from ingero.discover import processes, sockets
from ingero.discover.sockets import End
from ingero.model.window import Process, Records

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
