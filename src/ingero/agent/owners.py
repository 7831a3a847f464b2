"""Retransmits happen in an interrupt; whose they are is found by the socket's inode.

Sockets of other processes are none of this trace's business; a socket nobody holds
any more (an orphan, still sending) stays, with no owner.
"""

from __future__ import annotations

import numpy as np

from ingero.agent.targets import Targets
from ingero.discover import processes, sockets
from ingero.model.window import Records

# Looking through every process is dear: once per window, and only for what targets do not hold.
MAX_STRANGERS = 64


def name_owners(retransmits: Records, targets: Targets) -> Records:
    """The rows that belong here, with pid, thread and name of the owner."""
    if not len(retransmits):
        return retransmits
    inodes = set(retransmits["inode"].tolist())
    held = sockets.owners(inodes, targets.live)
    strangers = inodes - set(held)
    foreign = sockets.owners(list(strangers)[:MAX_STRANGERS], processes.list_pids()) if strangers else {}
    kept = []
    for row in retransmits:
        inode = int(row["inode"])
        if inode in foreign:
            continue
        target = targets.live.get(held.get(inode, 0))
        if target is not None:
            header = row["h"]
            header["pid"] = header["tid"] = target.process.pid
            header["comm"] = target.process.comm.encode()[:15]
            header["cgroup_id"] = target.process.cgroup_id
        kept.append(row)
    return np.array(kept, retransmits.dtype) if kept else retransmits[:0]
