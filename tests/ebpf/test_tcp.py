"""TCP retransmits: what was sent again, between whom, and through whose socket."""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ebpf.accounts import Stage, stage
from tests.ebpf.test_waits import namespaces
from tests.ebpf.tracing import Tracer

PORT = 7799
LIBC = ctypes.CDLL(None)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Sockets made here belong to a network namespace."""
    with Path("/proc/thread-self/ns/net").open() as own, Path(f"/run/netns/{namespace}").open() as other:
        assert LIBC.setns(other.fileno(), 0) == 0
        try:
            yield
        finally:
            assert LIBC.setns(own.fileno(), 0) == 0


@contextmanager
def dropping(namespace: str) -> Iterator[None]:
    """Everything that arrives there for the port is dropped."""

    def nft(rule: str) -> None:
        subprocess.run(["ip", "netns", "exec", namespace, "nft", *rule.split()], check=True)

    nft("add table inet lossy")
    nft("add chain inet lossy in { type filter hook input priority 0 ; }")
    nft(f"add rule inet lossy in tcp dport {PORT} drop")
    try:
        yield
    finally:
        nft("delete table inet lossy")


@pytest.fixture(scope="module")
def wire() -> Iterator[tuple[str, str]]:
    with namespaces("ingt") as names:
        yield names


@pytest.fixture(scope="module")
def acting(tracer: Tracer) -> Iterator[Stage]:
    with stage(tracer) as running:
        yield running


def wait_for(true: object, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("here, there", [("10.9.9.1", "10.9.9.2"), ("fd09::1", "fd09::2")], ids=["v4", "v6"])
def test_a_retransmit_tells_addresses_ports_socket_and_owner(
    acting: Stage, tracer: Tracer, wire: tuple[str, str], tmp_path: Path, here: str, there: str
) -> None:
    family = socket.AF_INET6 if ":" in here else socket.AF_INET
    with inside(wire[1]):
        server = socket.create_server((there, PORT), family=family)
    gate = tmp_path / "gate"
    acted = []
    sending = threading.Thread(
        target=lambda: acted.append(acting.play("send_into_the_dark", wire[0], there, PORT, gate))
    )
    with server:
        sending.start()
        wait_for(gate.exists)
        with dropping(wire[1]):
            gate.unlink()
            sending.join()
    [played] = acted
    rows = tracer.gather("tcp", acting.pid)
    mine = rows[(rows["inode"] == played.said["inode"]) & (rows["sport"] == played.said["port"])]
    assert len(mine) >= 1
    size = 16 if family == socket.AF_INET6 else 4
    for row in mine:
        assert int(row["dport"]) == PORT
        assert int(row["family"]) == int(family)
        assert ipaddress.ip_address(bytes(row["saddr"][:size])) == ipaddress.ip_address(here)
        assert ipaddress.ip_address(bytes(row["daddr"][:size])) == ipaddress.ip_address(there)
    assert 1 in mine["state"]  # established; a SYN may have been lost too, before its neighbour was known
    times = mine["h"]["start_ns"].tolist()
    assert times == sorted(times)


SENDER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
    print("connected", one.getsockname()[1], flush=True)
    sys.stdin.readline()
    one.sendall(b"x" * 1000)
    sys.stdin.readline()
"""


@contextmanager
def sender(namespace: str, address: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Not traced, and still connected when the test is over; it and its port."""
    words = ["ip", "netns", "exec", namespace, sys.executable, "-c", SENDER, address, str(PORT)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        word, port = running.stdout.readline().split()
        assert word == "connected"
        yield running, int(port)
        running.kill()


@pytest.mark.parametrize("there", ["10.9.9.2", "fd09::2"], ids=["v4", "v6"])
def test_a_traced_receiver_is_named_though_the_sender_is_a_stranger(
    tracer: Tracer, wire: tuple[str, str], tmp_path: Path, there: str
) -> None:
    gate = tmp_path / "gate"
    net = f"--net=/run/netns/{wire[1]}"
    with stage(tracer, before=("nsenter", net)) as receiving:
        waiting = threading.Thread(target=lambda: receiving.play("accept_and_wait", there, PORT, gate))
        waiting.start()
        wait_for(gate.exists)
        with sender(wire[0], there) as (stranger, port), dropping(wire[1]):
            assert stranger.stdin is not None
            stranger.stdin.write("go\n")
            stranger.stdin.flush()
            waiting.join()
            rows = tracer.gather("tcp")
            mine = rows[(rows["peer_pid"] == receiving.pid) & (rows["sport"] == port)]
            met = [each.pid for window in tracer.windows for each in window.bystanders]
        assert len(mine) >= 1
        assert set(mine["h"]["pid"].tolist()) == {stranger.pid}
        assert stranger.pid in met


def test_a_connection_between_strangers_is_none_of_our_business(
    tracer: Tracer, wire: tuple[str, str]
) -> None:
    with inside(wire[1]):
        server = socket.create_server(("10.9.9.2", PORT))
    first = len(tracer.windows)
    with server, sender(wire[0], "10.9.9.2") as (stranger, port), dropping(wire[1]):
        assert stranger.stdin is not None
        stranger.stdin.write("go\n")
        stranger.stdin.flush()
        time.sleep(0.8)
        tracer.tick()
    assert not [row for window in tracer.windows[first:] for row in window.tcp if row["sport"] == port]


def test_nothing_is_told_where_nothing_is_lost(acting: Stage, tracer: Tracer) -> None:
    before = len(tracer.gather("tcp", acting.pid))
    acting.play("loopback", "127.0.0.1")
    assert len(tracer.gather("tcp", acting.pid)) == before
