"""Nobody reads metrics who may not, and nobody keeps those out who may."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from ingero.errors import UsageError
from ingero.serve.metrics.prometheus import PrometheusExporter
from ingero.serve.web.opening import Wanted, open_server
from ingero.serve.web.private_files import Folder
from ingero.serve.web.server import Address
from tests.unit.serve.answers.test_metrics import whole

CLIENTS, SLOW = 200, 300
NOBODY = 65534


class Scraped:
    """A server and how to ask it."""

    def __init__(self, folder: Path, port: int, secure: bool) -> None:
        self.folder, self.port = folder, port
        self.url = f"{'https' if secure else 'http'}://localhost:{port}/metrics"

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "certificate.pem"))

    @property
    def token(self) -> dict[str, str]:
        return {"authorization": f"Bearer {(self.folder / 'token').read_text().strip()}"}

    def get(self, method: str = "GET", path: str = "", **headers: str) -> httpx2.Response:
        with httpx2.Client(verify=self.trust if self.url.startswith("https") else True) as client:
            return client.request(method, f"{self.url}{path}", headers=headers)


@contextmanager
def scraped(tmp_path: Path, host: str = "", secure: bool = True) -> Iterator[Scraped]:
    folder = tmp_path / "server"
    opened = open_server(Wanted(Address(host, 0), tls=secure), Folder(folder), {}, ())
    exporter, meter = PrometheusExporter(opened), whole()
    exporter.start(meter.snapshot)
    try:
        yield Scraped(folder, int(opened.url.rpartition(":")[2]), secure)
    finally:
        exporter.stop(None)


def test_whether_it_is_alive_is_told_to_a_kubelet_that_has_no_token(tmp_path: Path) -> None:
    with scraped(tmp_path) as server, httpx2.Client(verify=server.trust) as client:
        told = client.get(f"https://localhost:{server.port}/alive")
        assert (told.status_code, told.text) == (200, "alive\n")
        assert client.get(server.url).status_code == 401


def test_off_this_machine_only_with_the_token_that_was_made(tmp_path: Path) -> None:
    with scraped(tmp_path) as server:
        assert server.get().status_code == 401
        assert server.get(authorization="Bearer wrong-wrong-wrong-wrong").status_code == 401
        answer = server.get(**server.token)
        assert answer.status_code == 200
        assert "ingero_events_total" in answer.text
        assert (server.folder / "token").stat().st_mode & 0o777 == 0o600


def test_what_is_not_a_scrape_is_refused(tmp_path: Path) -> None:
    with scraped(tmp_path) as server:
        assert server.get(path="/../etc", **server.token).status_code == 404
        assert server.get("POST", **server.token).status_code == 405
        assert server.get(host="evil.example", **server.token).status_code == 421
        assert server.get(origin="https://evil.example", **server.token).status_code == 403
        assert server.get("HEAD", **server.token).text == ""


def test_only_tls_1_3_and_never_plain_text_off_this_machine(tmp_path: Path) -> None:
    with scraped(tmp_path) as server:
        old = server.trust
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(("127.0.0.1", server.port)) as plain, pytest.raises(ssl.SSLError):
            old.wrap_socket(plain, server_hostname="localhost")
    with pytest.raises(UsageError, match="no-tls"):
        open_server(Wanted(Address("", 0), tls=False), Folder(tmp_path), {}, ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_this_machine_needs_a_token(tmp_path: Path) -> None:
    with scraped(tmp_path, "127.0.0.1", secure=False) as server:
        assert server.get().status_code == 200
        ask = (
            f"exec 3<>/dev/tcp/127.0.0.1/{server.port};"
            r" printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n' >&3; head -1 <&3"
        )
        said = subprocess.run(
            ["bash", "-c", ask], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/",
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert said.stdout.split()[1] == "401"


def test_two_hundred_who_ask_at_once_are_all_answered(tmp_path: Path) -> None:
    with scraped(tmp_path) as server:
        trust, token = server.trust, server.token

        async def one() -> int:
            async with httpx2.AsyncClient(verify=trust, timeout=60) as client:
                return (await client.get(server.url, headers=token)).status_code

        async def ask() -> list[int]:
            return await asyncio.gather(*(one() for _ in range(CLIENTS)))

        assert asyncio.run(ask()) == [200] * CLIENTS


def test_connections_that_never_come_to_the_point_keep_nobody_out(tmp_path: Path) -> None:
    with scraped(tmp_path) as server, ExitStack() as held:
        for _ in range(SLOW):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        for _ in range(20):
            plain = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            secure = held.enter_context(server.trust.wrap_socket(plain, server_hostname="localhost"))
            secure.sendall(b"GET /metrics HTTP/1.1\r\nHost: local")
        assert server.get(**server.token).status_code == 200
