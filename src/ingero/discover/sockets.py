"""Which process holds a socket: its inode is the name behind one of the descriptors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

MAX_DESCRIPTORS = 65536  # of one process; a hostile one may have millions


def owners(inodes: Iterable[int], pids: Iterable[int]) -> dict[int, int]:
    """pid by inode, for those sockets that one of these processes holds."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes if inode}
    found: dict[int, int] = {}
    for pid in pids:
        if len(found) == len(wanted):
            break
        for link in _descriptors(pid):
            if link in wanted:
                found.setdefault(wanted[link], pid)
    return found


def _descriptors(pid: int) -> list[str]:
    folder = f"/proc/{pid}/fd"
    links: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(links) >= MAX_DESCRIPTORS:
                    break
                try:
                    links.append(str(Path(entry.path).readlink()))
                except OSError:  # closed meanwhile
                    continue
    except OSError:
        return []
    return links
