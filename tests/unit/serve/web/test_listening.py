"""Sockets of our servers."""

from __future__ import annotations

import socket

import pytest

from ingero.serve.web.server import Address, listen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_the_end_of_an_answer_does_not_wait_for_its_beginning_to_be_confirmed(host: str) -> None:
    for listening in listen(Address(host, 0)):
        port = listening.getsockname()[1]
        target = ("::1" if listening.family == socket.AF_INET6 and host else "127.0.0.1", port)
        with listening, socket.create_connection(target), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
