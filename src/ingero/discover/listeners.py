"""Does a process serve others: does it hold a socket that listens?

The kernel lists the sockets of a network namespace under every process in it; whose
they are is told by the descriptors. One namespace is read once per round.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ingero.discover.processes import ProcessHandle

MAX_TABLE_BYTES = 4 << 20  # some 27,000 sockets
MAX_DESCRIPTORS = 8192
_TCP_LISTENS = b"0A"
_UNIX_LISTENS = 0x10000
# Sockets that every CUDA process has of its driver's, and Python's multiprocessing for its own
# helpers: nobody is served there.
_OWN_HELPERS = re.compile(rb"@cuda-|@nvidia|/pymp-[^/]*/listener-")


class Round:
    """One look at many processes; make a new one for the next."""

    def __init__(self) -> None:
        self._listening: dict[int, frozenset[int] | None] = {}

    def listens(self, pid: int) -> bool | None:
        """None: cannot be told."""
        try:
            namespace = Path(f"/proc/{pid}/ns/net").stat().st_ino
            if namespace not in self._listening:
                self._listening[namespace] = listening_inodes(pid)
            return _holds(pid, self._listening[namespace])
        except (OSError, ValueError):
            return None


def listening_inodes(pid: int) -> frozenset[int] | None:
    """Sockets of the process's network namespace that listen; None when there are too many to tell."""
    found: set[int] = set()
    with ProcessHandle(pid) as handle:
        for name in ("net/tcp", "net/tcp6", "net/unix"):
            try:
                raw = handle.read(name, MAX_TABLE_BYTES)
            except FileNotFoundError:  # a kernel without that family
                continue
            if len(raw) == MAX_TABLE_BYTES:
                return None
            found.update(parse_unix(raw) if name == "net/unix" else parse_tcp(raw))
    return frozenset(found)


def parse_tcp(raw: bytes) -> Iterator[int]:
    for line in raw.splitlines()[1:]:
        if _TCP_LISTENS in line:
            words = line.split()
            if len(words) > 9 and words[3] == _TCP_LISTENS:
                yield int(words[9])


def parse_unix(raw: bytes) -> Iterator[int]:
    """A path may hold anything, a line break too: what does not look like a row is none."""
    for line in raw.splitlines()[1:]:
        words = line.split(maxsplit=7)
        if len(words) > 6 and words[0].endswith(b":") and words[6].isdigit() and len(words[3]) == 8:
            try:
                listens = int(words[3], 16) & _UNIX_LISTENS
            except ValueError:
                continue
            if listens and not (len(words) > 7 and _OWN_HELPERS.search(words[7])):
                yield int(words[6])


def _holds(pid: int, inodes: frozenset[int] | None) -> bool | None:
    if not inodes:
        return None if inodes is None else False
    wanted = {f"socket:[{inode}]" for inode in inodes}
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for count, entry in enumerate(entries):
            if count == MAX_DESCRIPTORS:
                return None
            try:
                if str(Path(entry.path).readlink()) in wanted:
                    return True
            except OSError:  # closed meanwhile
                continue
    return False
