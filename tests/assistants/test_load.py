"""Many clients at once, and some that never come to the point."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

from tests.assistants.asking import LIST_TOOLS, ask_http, context, http_client, post, running
from tests.servers import TOKEN

CLIENTS = 200
SLOW = 300
HALF_A_REQUEST = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
)


def test_two_hundred_clients_at_once_are_all_answered(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", ":0", environ={"INGERO_TOKEN": TOKEN}) as server:
        shared = context(server)

        async def ask() -> list[str]:
            clients = [http_client(server, TOKEN, verify=shared) for _ in range(CLIENTS)]
            tools = ("get_findings", "get_trace_stats", "get_causal_chains", "get_process_time")
            asked = [
                ask_http(server.on("localhost"), client, [(tools[number % len(tools)], {})])
                for number, client in enumerate(clients)
            ]
            return [answer.text for (answer,) in await asyncio.gather(*asked)]

        answers = asyncio.run(ask())
        assert len(answers) == CLIENTS
        assert all('"answer"' in answer for answer in answers)
        assert server.alive()


def test_connections_that_send_nothing_keep_nobody_out(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", "127.0.0.1:0") as server, ExitStack() as held:
        for _ in range(SLOW):  # neither greets
            held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        trusting = context(server)
        for _ in range(20):  # nor ends its request
            plain = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            secure = held.enter_context(trusting.wrap_socket(plain, server_hostname="localhost"))
            secure.sendall(HALF_A_REQUEST)
        assert post(server, LIST_TOOLS).status_code == 200


def closed_by_server(connection: ssl.SSLSocket | socket.socket) -> bool:
    connection.settimeout(30)
    try:
        return connection.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def test_a_request_that_does_not_arrive_in_time_is_given_up(incident: Path, home: Path) -> None:
    hurried = "from ingero.serve.web import server; server.REQUEST_S = 1.0; server.HANDSHAKE_S = 1.0"
    with running(incident, home, "--http", "127.0.0.1:0", before=hurried) as server, ExitStack() as held:
        silent = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        connections: list[ssl.SSLSocket] = []
        for begun in (b"", b"P", HALF_A_REQUEST, HALF_A_REQUEST + b"\r\n{"):
            plain = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            secure = context(server).wrap_socket(plain, server_hostname="localhost")
            connections.append(held.enter_context(secure))
            if begun:
                secure.sendall(begun)
        assert closed_by_server(silent)
        assert all(map(closed_by_server, connections))
        assert post(server, LIST_TOOLS).status_code == 200


def test_a_byte_now_and_then_does_not_keep_a_connection(incident: Path, home: Path) -> None:
    hurried = "from ingero.serve.web import server; server.REQUEST_S = 1.0"
    with running(incident, home, "--http", "127.0.0.1:0", "--no-tls", before=hurried) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(HALF_A_REQUEST + b"X-Slow: ")
            connection.settimeout(0.2)
            for _ in range(100):
                try:
                    connection.sendall(b"x")
                    if connection.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            else:
                raise AssertionError("it was let go on for twenty seconds")
        assert server.alive()


def test_beyond_its_connections_it_says_so(incident: Path, home: Path) -> None:
    few = "from ingero.serve.web import server; server.CONNECTIONS = 5"
    with (
        running(incident, home, "--http", "127.0.0.1:0", "--no-tls", before=few) as server,
        ExitStack() as held,
    ):
        for _ in range(10):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        url = server.on("127.0.0.1")
        assert post(server, LIST_TOOLS, url=url).status_code == 503
        held.close()
        assert post(server, LIST_TOOLS, url=url).status_code in (200, 503)
        assert server.alive()
