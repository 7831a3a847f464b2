"""Many clients at once, and some that never come to the point."""

from __future__ import annotations

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2

from tests.browser.serving import TOKEN, Running, running

CLIENTS, SLOW = 200, 300
ASKED = ("explain", "timeline?width=800", "accounting", "operations", "heatmap", "flame", "recordings")
HALF_A_REQUEST = b"GET /api/v1/explain HTTP/1.1\r\nHost: localhost\r\n"


def test_two_hundred_clients_at_once_are_all_answered(server: Running) -> None:
    trusted = ssl.create_default_context(cafile=str(server.home / ".ingero/server/certificate.pem"))

    async def one(number: int) -> int:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(verify=trusted, timeout=60, headers=headers) as client:
            path = f"/api/v1/{ASKED[number % len(ASKED)]}"
            return (await client.get(server.url(path))).status_code

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(one(number) for number in range(CLIENTS)))

    with ThreadPoolExecutor(1) as elsewhere:  # the browser's driver has a loop in this thread
        assert elsewhere.submit(lambda: asyncio.run(all_of_them())).result() == [200] * CLIENTS
    assert server.alive()


def test_two_hundred_listen_and_others_are_still_answered(incident: Path, home: Path) -> None:
    with running(incident, home) as server, ExitStack() as held:
        trusted = server.tls()
        begin = f"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        listeners = []
        for _ in range(CLIENTS):
            plain = held.enter_context(socket.create_connection(("localhost", server.port)))
            secure = held.enter_context(trusted.wrap_socket(plain, server_hostname="localhost"))
            secure.sendall(begin.encode())
            listeners.append(secure)
        assert all(b"200 OK" in each.recv(4096) for each in listeners)
        assert server.ask("/api/v1/explain").status == 200


def test_connections_that_send_nothing_keep_nobody_out(incident: Path, home: Path) -> None:
    with running(incident, home) as server, ExitStack() as held:
        for _ in range(SLOW):  # neither greets
            held.enter_context(socket.create_connection(("localhost", server.port)))
        for _ in range(20):  # nor ends its request
            plain = held.enter_context(socket.create_connection(("localhost", server.port)))
            secure = held.enter_context(server.tls().wrap_socket(plain, server_hostname="localhost"))
            secure.sendall(HALF_A_REQUEST)
        assert server.ask("/api/v1/health").status == 200
        assert server.ask("/api/v1/explain").status == 200
