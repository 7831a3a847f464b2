"""Listening sockets that let so many connections in at a time, those amid a TLS handshake among them.

uvicorn counts connections once they can send requests. Before that each is some memory already, and
as many as there are descriptors would come in. One address gets half of the places at most, so that
a flood from one machine does not keep others out.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

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
