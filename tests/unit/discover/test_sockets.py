"""The holder of a socket is found by its inode."""

from __future__ import annotations

import os
import socket

import pytest

from ingero.discover.sockets import End, find_connections, network_namespace, owners


def test_an_open_socket_belongs_to_the_process_that_holds_it() -> None:
    with socket.socket() as held:
        inode = os.fstat(held.fileno()).st_ino
        assert owners([inode], [1, os.getpid()]) == {inode: os.getpid()}


def test_a_closed_socket_belongs_to_nobody() -> None:
    with socket.socket() as held:
        inode = os.fstat(held.fileno()).st_ino
    assert owners([inode], [os.getpid()]) == {}


def test_an_inode_of_zero_and_a_vanished_process_are_no_trouble() -> None:
    assert owners([0], [os.getpid(), 2**22]) == {}


def end_of(name: tuple[str, int]) -> End:
    family = socket.AF_INET6 if ":" in name[0] else socket.AF_INET
    return socket.inet_pton(family, name[0]), name[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_both_ends_of_a_connection_are_found_by_their_addresses(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.create_server((address, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
        server.accept()[0] as accepted,
    ):
        near, far = end_of(client.getsockname()[:2]), end_of(client.getpeername()[:2])
        expected = {
            (near, far): os.fstat(client.fileno()).st_ino,
            (far, near): os.fstat(accepted.fileno()).st_ino,
        }
        nobody = ((near[0], 1), far)
        assert find_connections(os.getpid(), [*expected, nobody]) == expected


def test_an_old_address_in_a_new_socket_is_the_same_address() -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.create_connection(("127.0.0.1", server.getsockname()[1])) as client,
        server.accept()[0] as accepted,
    ):
        near, far = end_of(client.getsockname()), end_of(client.getpeername())
        mapped: tuple[End, End] = tuple((bytes(10) + b"\xff\xff" + raw, port) for raw, port in (near, far))
        theirs, ours = os.fstat(accepted.fileno()).st_ino, os.fstat(client.fileno()).st_ino
        assert find_connections(os.getpid(), [(far, near)]) == {(far, near): theirs}
        assert find_connections(os.getpid(), [mapped]) == {mapped: ours}


def test_a_vanished_process_has_no_connections_and_no_namespace() -> None:
    assert find_connections(2**22, [((b"\x7f\0\0\1", 1), (b"\x7f\0\0\1", 2))]) == {}
    assert network_namespace(2**22) == 0
    assert network_namespace(os.getpid()) > 0
