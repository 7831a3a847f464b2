"""The holder of a socket is found by its inode."""

from __future__ import annotations

import os
import socket

from ingero.discover.sockets import owners


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
