"""Runs an ASGI application on sockets of ours until it is told to stop.

uvicorn gives a client all the time it likes to send a request: a connection that
sends a byte now and then would stay for ever, and enough of them would keep
everybody else out. Here a request has to arrive within its time (and connections are bounded
from the first packet on: connections.py).
"""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ingero.errors import UsageError
from ingero.serve.web.connections import address_of, doors_of
from ingero.serve.web.guard import Application

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
REQUEST_S = 15.0  # from the connection, or the answer before, to the last byte of a request
HANDSHAKE_S = 10.0
KEEP_ALIVE_S = 5
CONNECTIONS = 1000  # beyond them: 503
REFUSED = 100  # connections that may be told so at a time; beyond them: closed
HEADER_BYTES = 16 << 10
STOP_S = 5
CERTIFIED = "certified"  # in the state of a request: names in the client's certificate


@dataclass(frozen=True)
class Address:
    """Where to listen; an empty host is every address of this machine."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Nobody outside this machine can reach it."""
        address = address_of(self.host)
        return self.host == "localhost" or (address is not None and address.is_loopback)


def parse_address(text: str, flag: str, usual_port: int = 8443) -> Address:
    """`:8443`, `127.0.0.1:8443`, `[::1]:8443` or `gpu-node-01:8443`; `usual_port` is for the hint."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare and not host.startswith("["):
        port = ""
    if not (port.isascii() and port.isdecimal()) or int(port) > 65535 or ":" not in text:
        raise UsageError(
            f"{flag}: not an address: {text!r}",
            hint=f"Write HOST:PORT, as in :{usual_port}, 127.0.0.1:{usual_port} or [::1]:{usual_port}.",
        )
    return Address(bare, int(port))


def listen(address: Address) -> list[socket.socket]:
    """Sockets on that address; port 0 takes a free one."""
    sockets = _listening(address)
    for each in sockets:
        # Connections inherit it; asyncio sets it only where the socket names its protocol. Without it the
        # end of an answer waits for the client to confirm its beginning, which clients do after 40 ms.
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sockets


def _listening(address: Address) -> list[socket.socket]:
    try:
        if not address.host:
            return [_everywhere(address.port)]
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        ends = dict.fromkeys((family, where[:2]) for family, _, _, _, where in found)
        sockets: list[socket.socket] = []
        for family, (host, port) in ends:
            port = sockets[0].getsockname()[1] if sockets and not port else port
            sockets.append(socket.create_server((str(host), int(port)), family=family, backlog=1024))
        return sockets
    except OSError as error:
        raise UsageError(
            f"cannot listen on {address.host or '*'}:{address.port}: {error.strerror or error}",
            hint="Is another server there? Choose another port, such as :8444.",
        ) from error


def _everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # IPv6 may be compiled in and switched off
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def names_of(address: Address, more: Sequence[str] = ()) -> list[str]:
    """What this server may be called: for its certificate and for the Host header."""
    own = [] if address.loopback else [socket.gethostname()]
    given = [address.host] if address.host and address_of(address.host) is None else []
    numbers = [
        str(found) for each in [address.host] if (found := address_of(each)) and not found.is_unspecified
    ]
    return list(dict.fromkeys(name.lower() for name in (*LOOPBACK_NAMES, *own, *given, *numbers, *more)))


def url_of(address: Address, sockets: Sequence[socket.socket], secure: bool) -> str:
    """Where it can be reached."""
    host = address.host or socket.gethostname()
    port = sockets[0].getsockname()[1]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def serve(
    app: Application,
    sockets: list[socket.socket],
    tls: ssl.SSLContext | None,
    ready: Callable[[], None],
    stopping: Callable[[], None] = lambda: None,
    connections: int | None = None,
    keep_alive_s: int = KEEP_ALIVE_S,
    lifespan: Literal["on", "off"] = "on",
) -> None:
    """Answer until SIGINT or SIGTERM; `ready` is called once connections are taken.

    `stopping` is called when told to end: answers that go on for ever have to find one then.
    """
    with asyncio.Runner(loop_factory=_Loop) as runner:
        config = _config(app, tls, lifespan, connections, keep_alive_s)
        doors = doors_of(sockets, (config.limit_concurrency or CONNECTIONS) + REFUSED)
        runner.run(_Server(config, ready, stopping).serve(list(doors)))


def _config(
    app: Application,
    tls: ssl.SSLContext | None,
    lifespan: Literal["on", "off"],
    connections: int | None = None,
    keep_alive_s: int = KEEP_ALIVE_S,
) -> uvicorn.Config:
    connections = CONNECTIONS if connections is None else connections
    _allow_many_files(connections)
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # whoever connects is who it is
        server_header=False,
        limit_concurrency=connections,
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=STOP_S,
        h11_max_incomplete_event_size=HEADER_BYTES,
    )
    config.load()
    config.ssl = tls
    return config


class _Server(uvicorn.Server):
    """Says when it is ready, and leaves quietly when told to."""

    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], stopping: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self._ready, self._stopping = ready, stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Being stopped is how a server ends: no failure, so nothing is raised again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._stopping()


class _Loop(asyncio.SelectorEventLoop):
    """Gives a TLS handshake less than a minute."""

    async def create_server(self, *args: Any, **more: Any) -> asyncio.Server:
        if more.get("ssl") is not None:
            more |= {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": HANDSHAKE_S}
        return await super().create_server(*args, **more)


class TimedProtocol(H11Protocol):
    """A connection whose requests have to arrive within REQUEST_S."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # uvicorn does not tell the application who is at the other end; the state of a request is ours.
        self.app_state = {**self.app_state, CERTIFIED: certified_names(transport)}
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._stop_if_arrived()

    def on_response_complete(self) -> None:
        self._expect_request()
        super().on_response_complete()  # may find the next request waiting
        self._stop_if_arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        self._cancel()
        self._due = self.loop.call_later(REQUEST_S, self._too_slow)

    def _stop_if_arrived(self) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._cancel()

    def _cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _too_slow(self) -> None:
        self.transport.abort()


def certified_names(transport: asyncio.Transport) -> tuple[str, ...]:
    """The names in the other end's certificate, where it showed one that was checked."""
    tls = transport.get_extra_info("ssl_object")
    shown = (tls.getpeercert() if tls is not None else None) or {}
    others = [value for kind, value in shown.get("subjectAltName", ()) if kind in ("DNS", "URI")]
    common = [value for part in shown.get("subject", ()) for name, value in part if name == "commonName"]
    return tuple(dict.fromkeys((*others, *common)))


def _allow_many_files(connections: int) -> None:
    """A connection is a file; the usual limit is that of an interactive program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * connections if hard == resource.RLIM_INFINITY else min(hard, 4 * connections)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
