"""Connections to a server of ours: how many are let in at a time, and who is at their other end."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

# Listening sockets that let so many connections in at a time, those amid a TLS handshake among them.
#
# uvicorn counts connections once they can send requests. Before that each is some memory already, and
# as many as there are descriptors would come in. One address gets half of the places at most, so that
# a flood from one machine does not keep others out.

AT_A_TIME = 64  # turned away before others get a turn


class Room:
    """Who is in, through any of a server's doors."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._guests: WeakKeyDictionary[socket.socket, str] = WeakKeyDictionary()

    def has_place_for(self, host: str) -> bool:
        if len(self._guests) >= self._most // 2:  # before that nobody has too many
            for gone in [each for each in self._guests if each.fileno() < 0]:
                del self._guests[gone]
        same = sum(each == host for each in self._guests.values()) if self._guests else 0
        return len(self._guests) < self._most and same < max(1, self._most // 2)

    def enter(self, guest: socket.socket, host: str) -> None:
        self._guests[guest] = host


class Door(socket.socket):
    """One listening socket; the event loop accepts from it."""

    room: Room

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(AT_A_TIME):
            guest, address = super().accept()
            host = str(address[0])
            if self.room.has_place_for(host):
                self.room.enter(guest, host)
                return guest, address
            guest.close()
        raise BlockingIOError


def doors_of(sockets: Iterable[socket.socket], most: int) -> list[Door]:
    """The same sockets; those given are closed."""
    room, doors = Room(most), []
    for each in sockets:
        door = Door(each.family, each.type, each.proto, fileno=each.detach())
        door.room = room
        doors.append(door)
    return doors


# Who is at the other end of a connection on this machine.
#
# The kernel lists every socket with the user it belongs to; the other end of ours is
# the one with our addresses the other way round.


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_UID = 7  # column


def address_of(text: str) -> Address | None:
    """An IP address; IPv4 written as IPv6 is IPv4."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_ours(
    client: tuple[str, int] | None, server: tuple[str, int | None] | None, owner: int | None = None
) -> bool:
    """The other end belongs to whoever started us, or to root; False where that cannot be told."""
    if client is None or server is None or server[1] is None:
        return False
    uid = user_of((client[0], client[1]), (server[0], server[1]))
    return uid is not None and uid in (0, os.geteuid() if owner is None else owner)


def user_of(local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The user who holds the socket with these ends."""
    ends = [_spellings(*local), _spellings(*remote)]
    for table in TABLES:
        try:
            lines = table.read_text("ascii", "replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            cells = line.split()
            if len(cells) > _UID and cells[1] in ends[0] and cells[2] in ends[1]:
                return int(cells[_UID])
    return None


def _spellings(host: str, port: int) -> set[str]:
    """As the kernel's tables write an end: words of the address in the machine's byte order."""
    address = address_of(host)
    if address is None:
        return set()
    forms = [address.packed]
    if address.version == 4:
        forms.append(bytes(10) + b"\xff\xff" + address.packed)
    return {f"{_swapped(form)}:{port:04X}" for form in forms}


def _swapped(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
