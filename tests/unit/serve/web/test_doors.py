"""Connections are bounded from the first packet on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ingero.serve.web.connections import Door, doors_of

MOST = 8


@pytest.fixture
def door() -> Iterator[Door]:
    (door,) = doors_of([socket.create_server(("127.0.0.1", 0), backlog=64)], MOST)
    door.setblocking(False)
    with door:
        yield door


def connected(door: Door, host: str) -> socket.socket:
    """From another address of this machine."""
    return socket.create_connection(door.getsockname(), source_address=(host, 0))


def let_in(door: Door) -> list[socket.socket]:
    found = []
    while True:
        try:
            found.append(door.accept()[0])
        except BlockingIOError:
            return found


def test_one_address_gets_half_of_the_places_and_others_the_rest(door: Door) -> None:
    flood = [connected(door, "127.0.0.2") for _ in range(30)]
    inside = let_in(door)
    assert len(inside) == MOST // 2
    other = connected(door, "127.0.0.3")
    (guest,) = let_in(door)
    assert guest.getpeername()[0] == "127.0.0.3"
    assert flood[-1].recv(1) == b""  # closed, not left waiting
    for each in (*flood, *inside, other, guest):
        each.close()


def test_there_is_an_end_whoever_comes(door: Door) -> None:
    crowd = [connected(door, f"127.0.1.{number}") for number in range(1, 30)]
    inside = let_in(door)
    assert len(inside) == MOST
    inside.pop().close()
    late = connected(door, "127.0.2.1")
    inside += let_in(door)
    assert len(inside) == MOST
    for each in (*crowd, *inside, late):
        each.close()


def test_a_flood_is_turned_away_in_turns(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero.serve.web.connections.AT_A_TIME", 3)
    flood = [connected(door, "127.0.0.2") for _ in range(MOST // 2 + 5)]
    inside = [door.accept()[0] for _ in range(MOST // 2)]
    for _ in range(2):  # five are left: three, then two and nobody
        with pytest.raises(BlockingIOError):
            door.accept()
    assert all(each.recv(1) == b"" for each in flood[MOST // 2 :])
    for each in (*flood, *inside):
        each.close()
