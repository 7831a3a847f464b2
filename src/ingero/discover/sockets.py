"""Sockets of processes: who holds one, and who listens on one and so serves others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ingero.discover.processes import ProcessHandle

# Which process holds a socket: its inode is the name behind one of the descriptors.
#
# The other end of a connection is found by its mirrored addresses, in the network
# namespace of whoever might hold it; behind address translation it is not found.

MAX_DESCRIPTORS = 65536  # of one process; a hostile one may have millions
MAX_TABLE_BYTES = 16 << 20  # some 100,000 connections
_MAPPED = bytes(10) + b"\xff\xff"  # IPv4 as IPv6 spells it
End = tuple[bytes, int]  # address of 4 or 16 bytes, port


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


def network_namespace(pid: int) -> int:
    """0 when it cannot be told."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return 0


def find_connections(pid: int, wanted: Iterable[tuple[End, End]]) -> dict[tuple[End, End], int]:
    """Socket inode by (local end, remote end), in this process's network namespace."""
    tables = {size: _table(pid, name) for size, name in ((4, "net/tcp"), (16, "net/tcp6"))}
    found: dict[tuple[End, End], int] = {}
    for local, remote in wanted:
        for size, table in tables.items():
            inode = _inode_of(table, _spelt(local, size), _spelt(remote, size))
            if inode:
                found[local, remote] = inode
    return found


def _table(pid: int, name: str) -> bytes:
    try:
        with ProcessHandle(pid) as handle:
            return handle.read(name, MAX_TABLE_BYTES)
    except OSError:
        return b""


def _spelt(end: End, size: int) -> bytes:
    """As the kernel writes it: words in this machine's order. Empty where the family has no such address."""
    address, port = end
    full = address if len(address) == 16 else _MAPPED + address
    if size == 4 and not full.startswith(_MAPPED):
        return b""
    words = full[-size:]
    text = "".join(words[at : at + 4][::-1].hex() for at in range(0, size, 4))
    return f"{text}:{port:04x}".upper().encode()


def _inode_of(table: bytes, local: bytes, remote: bytes) -> int:
    at = table.find(b" " + local + b" " + remote + b" ") if local and remote else -1
    if at < 0:
        return 0
    words = table[at : table.find(b"\n", at)].split()
    return int(words[8]) if len(words) > 8 and words[8].isdigit() else 0


# Does a process serve others: does it hold a socket that listens?
#
# The kernel lists the sockets of a network namespace under every process in it; whose
# they are is told by the descriptors. One namespace is read once per round.


MAX_LISTENERS_BYTES = 4 << 20  # some 27,000 sockets
MAX_DESCRIPTORS_LOOKED_AT = 8192
_TCP_LISTENS = b"0A"
_UNIX_LISTENS = 0x10000
# Sockets that every CUDA process has of its driver's, and Python's multiprocessing for its own
# helpers: nobody is served there.
_OWN_HELPERS = re.compile(rb"@cuda-|@nvidia|/pymp-[^/]*/listener-")


class ListenerRound:
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
                raw = handle.read(name, MAX_LISTENERS_BYTES)
            except FileNotFoundError:  # a kernel without that family
                continue
            if len(raw) == MAX_LISTENERS_BYTES:
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
            if count == MAX_DESCRIPTORS_LOOKED_AT:
                return None
            try:
                if str(Path(entry.path).readlink()) in wanted:
                    return True
            except OSError:  # closed meanwhile
                continue
    return False
