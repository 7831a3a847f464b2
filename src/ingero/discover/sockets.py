"""Which process holds a socket: its inode is the name behind one of the descriptors.

The other end of a connection is found by its mirrored addresses, in the network
namespace of whoever might hold it; behind address translation it is not found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ingero.discover.processes import ProcessHandle

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
