"""Who listens, among real processes and hostile tables."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from ingero.discover import sockets
from ingero.discover.sockets import ListenerRound, parse_tcp, parse_unix

from .conftest import WAIT, Start

SERVE = "import socket, sys; s = socket.socket({family}); s.bind({name!r}); {listen};" + WAIT


def serve(start: Start, family: str, name: object, listen: bool = True) -> int:
    code = SERVE.format(family=f"socket.{family}", name=name, listen="s.listen()" if listen else "pass")
    return start(sys.executable, "-c", code).pid


@pytest.mark.parametrize("family, name", [("AF_INET", ("127.0.0.1", 0)), ("AF_INET6", ("::1", 0))])
def test_a_tcp_server_listens(start: Start, family: str, name: object) -> None:
    assert ListenerRound().listens(serve(start, family, name)) is True


def test_a_unix_server_listens_whatever_its_path(start: Start, tmp_path: Path) -> None:
    assert ListenerRound().listens(serve(start, "AF_UNIX", str(tmp_path / "a b"))) is True
    assert ListenerRound().listens(serve(start, "AF_UNIX", "\0hidden")) is True


def test_clients_and_bound_sockets_do_not_listen(start: Start, tmp_path: Path) -> None:
    here = ListenerRound()
    assert here.listens(serve(start, "AF_INET", ("127.0.0.1", 0), listen=False)) is False
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = start(
            sys.executable,
            "-c",
            f"import socket; s = socket.create_connection(('127.0.0.1', {port}));" + WAIT,
        )
        assert ListenerRound().listens(client.pid) is False
        assert ListenerRound().listens(os.getpid()) is True


def test_a_process_that_is_gone_is_not_known(start: Start) -> None:
    child = start()
    child.kill()
    child.wait()
    assert ListenerRound().listens(child.pid) is None


def test_more_sockets_than_we_read_is_not_known(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child = serve(start, "AF_INET", ("127.0.0.1", 0))
    monkeypatch.setattr(sockets, "MAX_LISTENERS_BYTES", 200)
    assert ListenerRound().listens(child) is None


def test_a_path_that_looks_like_a_row_is_at_most_a_socket_nobody_holds() -> None:
    head = b"Num       RefCount Protocol Flags    Type St Inode Path\n"
    row = b"ffff888100000000: 00000002 00000000 00010000 0001 01 17 /run/x\n"
    junk = b"ffff888100000000: 00000002 00000000 zzzzzzzz 0001 01 18 /a\nb c d e f g h i j\n\xff\n"
    assert list(parse_unix(head + row + junk)) == [17]
    assert list(parse_unix(b"")) == []
    assert list(parse_tcp(b"head\n 0A 0A\n")) == []


def test_sockets_of_the_driver_and_of_pythons_helpers_serve_nobody() -> None:
    head = b"Num RefCount Protocol Flags Type St Inode Path\n"
    row = b"0000000000000000: 00000002 00000000 00010000 0001 01 %d %s\n"
    names = (b"@cuda-uvmfd-4026531836-2051", b"/tmp/pymp-x1/listener-ab", b"/run/app.sock", b"@app")
    table = head + b"".join(row % (number, name) for number, name in enumerate(names, start=1))
    assert list(sockets.parse_unix(table)) == [3, 4]
