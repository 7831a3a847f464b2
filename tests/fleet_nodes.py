"""Nodes to ask: real dashboards on addresses of this machine, and servers that misbehave."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ingero.store.writer import Writer
from tests import servers
from tests.assistants.certificates import Authority
from tests.builders import OPERATIONS, SECOND, FakeTime, call, operation, process, thread, window
from tests.servers import TOKEN

# A clock that is ahead, and gains so much in each nanosecond from the start of the server on.
AHEAD = (
    "import time; _real = time.time_ns; _then = _real();"
    " time.time_ns = lambda: _real() + ({ns}) + int((_real() - _then) * {rate})"
)


def record(
    path: Path,
    node: str,
    durations_ns: tuple[int, ...] = (1000, 2000, 3000),
    *,
    seconds: int = 3,
    at_s: int = 0,
    pid: int = 100,
) -> Path:
    """A recording of a few seconds: each call's duration, once a second."""
    time = FakeTime()
    time.advance(at_s * SECOND)
    with Writer(path, node, time.clock(), OPERATIONS, cores=4) as writer:
        for at in range(at_s, at_s + seconds):
            writer.write(
                window(
                    at * SECOND,
                    calls=[
                        call(took_ns=took, pid=pid, at_ns=at * SECOND + number * 1_000_000)
                        for number, took in enumerate(durations_ns)
                    ],
                    operations=[operation(durations_ns=durations_ns, pid=pid)],
                    threads=[thread(pid, host_cpu=SECOND)],
                    processes=[process(pid)],
                )
            )
    return path


@contextlib.contextmanager
def dashboard(
    db: Path,
    home: Path,
    *flags: str,
    ahead_ns: int = 0,
    rate: float = 0.0,
    token: str | None = TOKEN,
    inside: Sequence[str] = (),
) -> Iterator[str]:
    """`HOST:PORT` of a real one; its clock may be ahead, or run fast. `inside`: what is to run it."""
    home.mkdir(mode=0o700, exist_ok=True)
    before = AHEAD.format(ns=ahead_ns, rate=rate) if ahead_ns or rate else ""
    environ = {"INGERO_TOKEN": token} if token else {}
    words = ["dashboard", "-d", str(db), *flags]
    with servers.started(servers.Running, words, home, environ, before, inside=inside) as running:
        address = flags[flags.index("--addr") + 1].rpartition(":")[0] if "--addr" in flags else "127.0.0.1"
        yield f"{address}:{running.port}"


@contextlib.contextmanager
def misbehaving(handle: Callable[[socket.socket], None], certificate: Path | None = None) -> Iterator[str]:
    """`HOST:PORT` of a server that hands each connection to `handle`, over TLS where it has a certificate."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    over = threading.Event()

    def one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(20)
            if context is None:
                handle(connection)
                return
            with context.wrap_socket(connection, server_side=True) as wrapped:
                handle(wrapped)

    def serve() -> None:
        while not over.is_set():
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def request_of(connection: socket.socket) -> bytes:
    """A whole request: what is left unread when we hang up would take the answer with it."""
    got, length = b"", 0
    while b"\r\n\r\n" not in got or len(got.partition(b"\r\n\r\n")[2]) < length:
        part = connection.recv(65536)
        if not part:
            return b""
        got += part
        found = re.search(rb"\r\ncontent-length: (\d+)", got, re.I)
        length = int(found[1]) if found else 0
    return got


def response(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


__all__ = ["AHEAD", "Authority", "dashboard", "misbehaving", "record", "request_of", "response"]
