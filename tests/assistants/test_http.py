"""Over HTTPS: who gets in, who does not."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.assistants.asking import (
    LIST_TOOLS,
    Running,
    ask_http,
    command,
    context,
    http_client,
    post,
    running,
)
from tests.assistants.certificates import Authority
from tests.servers import TOKEN, environment

HERE, EVERYWHERE = "127.0.0.1:0", ":0"
CALLS = [("get_findings", {})]


def ask(server: Running, token: str | None = None, host: str = "localhost", **more: object) -> str:
    (answer,) = asyncio.run(ask_http(server.on(host), http_client(server, token, **more), CALLS))
    assert not answer.failed
    return str(answer.value["findings"][0]["kind"])


def test_everywhere_a_token_is_made_and_asked_for(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", EVERYWHERE) as server:
        assert ask(server, server.own_token) == "cpu-contention"
        assert ask(server, server.own_token, host="127.0.0.1") == "cpu-contention"
        for wrong in (None, "x" * 43, server.own_token[:-1], server.own_token + "x"):
            refused = post(server, LIST_TOOLS, wrong)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Bearer")
            assert server.own_token not in refused.text
        assert not any(server.own_token in line for line in server.said)
    for name, mode in (("token", 0o600), ("server.pem", 0o600), ("certificate.pem", 0o644)):
        assert stat.S_IMODE((home / ".ingero/server" / name).stat().st_mode) == mode


def test_the_certificate_and_the_token_stay_the_same(incident: Path, home: Path) -> None:
    seen = []
    for _ in range(2):
        with running(incident, home, "--http", EVERYWHERE) as server:
            seen.append((server.trusted.read_bytes(), server.own_token))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("variable", ["INGERO_MCP_BEARER_TOKEN", "INGERO_TOKEN"])
def test_a_token_may_come_from_the_environment(variable: str, incident: Path, home: Path) -> None:
    with running(incident, home, "--http", EVERYWHERE, environ={variable: TOKEN}) as server:
        assert ask(server, TOKEN) == "cpu-contention"
        assert post(server, LIST_TOOLS).status_code == 401
        assert not (home / ".ingero/server/token").exists()


def test_a_file_may_hold_several_tokens(incident: Path, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(mode=0o600)
    file.write_text(f"# the old one goes next week\n{TOKEN}\n\n{TOKEN}-new\n")
    with running(incident, home, "--http", HERE, "--token-file", str(file)) as server:
        assert ask(server, TOKEN) == ask(server, f"{TOKEN}-new") == "cpu-contention"
        assert post(server, LIST_TOOLS).status_code == 401
        assert post(server, LIST_TOOLS, "# the old one goes next week").status_code == 401


def test_clients_are_asked_for_a_certificate(incident: Path, home: Path, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "somebody-else")
    with running(incident, home, "--http", EVERYWHERE, "--client-ca", str(ours.file)) as server:
        assert ask(server, verify=context(server, client=ours.sign("alice"))) == "cpu-contention"
        for wrong in (None, theirs.sign("mallory")):
            with pytest.raises(httpx2.TransportError):
                post(server, LIST_TOOLS, verify=context(server, client=wrong))
        assert server.alive()


def test_with_a_token_and_an_authority_both_are_needed(incident: Path, home: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    flags = ("--http", EVERYWHERE, "--client-ca", str(authority.file))
    with running(incident, home, *flags, environ={"INGERO_TOKEN": TOKEN}) as server:
        known = context(server, client=authority.sign("alice"))
        assert ask(server, TOKEN, verify=known) == "cpu-contention"
        assert post(server, LIST_TOOLS, verify=known).status_code == 401
        with pytest.raises(httpx2.TransportError):
            post(server, LIST_TOOLS, TOKEN)


def test_a_certificate_of_the_user_is_shown(incident: Path, home: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    both = str(authority.sign("server"))
    with running(incident, home, "--http", HERE, "--cert", both, "--key", both) as server:
        trusting = ssl.create_default_context(cafile=str(authority.file))
        assert ask(server, verify=trusting) == "cpu-contention"
    assert not (home / ".ingero").exists()


def test_tls_before_1_3_is_refused(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", HERE) as server:
        old = context(server)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(httpx2.TransportError):
            post(server, LIST_TOOLS, verify=old)
        with (
            socket.create_connection(("127.0.0.1", server.port)) as plain,
            context(server).wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            assert secure.version() == "TLSv1.3"


def test_only_names_of_this_machine_are_answered(incident: Path, home: Path) -> None:
    flags = ("--http", EVERYWHERE, "--allowed-host", "gpu.example")
    with running(incident, home, *flags, environ={"INGERO_TOKEN": TOKEN}) as server:
        for host, status in (
            ("localhost", 200), (f"localhost:{server.port}", 200), ("gpu.example:8443", 200),
            (socket.gethostname(), 200), (f"127.0.0.1:{server.port}", 200), ("GPU.example", 200),
            ("evil.example", 421), ("localhost.evil.example", 421), ("10.1.2.3", 421), ("", 421),
            ("[::1", 421), ("localhost@evil.example", 421),
        ):  # fmt: skip
            assert post(server, LIST_TOOLS, TOKEN, headers={"Host": host}).status_code == status, host


def test_a_page_of_another_site_is_not_answered(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", HERE, environ={"INGERO_TOKEN": TOKEN}) as server:
        own = f"https://localhost:{server.port}"
        for origin, status in ((own, 200), ("https://evil.example", 403), ("null", 403), (own + "0", 403)):
            assert post(server, LIST_TOOLS, TOKEN, headers={"Origin": origin}).status_code == status, origin


def test_every_answer_has_the_security_headers(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", HERE, environ={"INGERO_TOKEN": TOKEN}) as server:
        for answer in (post(server, LIST_TOOLS, TOKEN), post(server, LIST_TOOLS), post(server, "{", TOKEN)):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")
            assert "strict-transport-security" in answer.headers
            assert "server" not in answer.headers


def test_only_posting_to_the_one_path_does_anything(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", HERE) as server:
        for method in ("GET", "DELETE", "PUT", "OPTIONS"):
            assert post(server, b"", method=method).status_code == 405
        other = server.on("localhost").replace("/mcp", "/elsewhere")
        assert post(server, LIST_TOOLS, url=other).status_code == 404


def test_a_request_that_is_too_large_is_refused(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", HERE) as server:
        assert post(server, b" " * (256 << 10) + b"{}").status_code == 413

        async def chunks() -> object:
            for _ in range(100):
                yield b" " * 10_000

        # It may be told, or find the connection closed while it still sends.
        with suppress(httpx2.TransportError):
            assert post(server, chunks()).status_code == 413  # type: ignore[arg-type]
        assert post(server, LIST_TOOLS).status_code == 200
        assert post(server, LIST_TOOLS, headers={"X-Long": "x" * 40_000}).status_code == 431


def test_on_this_machine_it_can_do_without_tls_and_token(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", HERE, "--no-tls") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert ask(server, host="127.0.0.1") == "cpu-contention"
    assert not (home / ".ingero").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's program is started by root")
def test_another_user_of_this_machine_needs_a_token(incident: Path, home: Path) -> None:
    script = (
        "import os, sys, http.client, encodings.idna; os.setuid(65534)\n"
        "c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
        "c.request('POST', '/mcp', sys.argv[2], {'Content-Type': 'application/json'})\n"
        "print(c.getresponse().status)"
    )
    with running(incident, home, "--http", HERE, "--no-tls") as server:
        asked = [sys.executable, "-c", script, str(server.port), LIST_TOOLS]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == "401"
        assert post(server, LIST_TOOLS, url=server.on("127.0.0.1")).status_code == 200


@pytest.mark.parametrize(
    "flags, error",
    [
        (["--http", ":8443", "--no-tls"], "--no-tls would send everything readable"),
        (["--http", "8443"], "--http: not an address: '8443'"),
        (["--http", "::1:8443"], "--http: not an address: '::1:8443'"),
        (["--http", ":99999"], "--http: not an address"),
        (["--http", ":0", "--cert", "x.pem"], "--cert and --key belong together"),
        (["--http", ":0", "--token-file", "none"], "cannot read the token file none"),
        (["--http", ":0", "--token-file", "open"], "the token file open is open to others"),
        (["--http", ":0", "--token-file", "short"], "the token in short is too easy to guess"),
        (["--http", ":0", "--token-file", "empty"], "the token file empty holds no token"),
        (["--http", ":0", "--client-ca", "short"], "cannot use short to check clients"),
        (["--http", ":0", "--cert", "short", "--key", "short"], "cannot use the certificate short"),
        (["--http", "192.0.2.1:0"], "cannot listen on 192.0.2.1:0"),
        (["--client-ca", "x.pem"], "--client-ca needs --http"),
        (["--token", "secret"], "no such option '--token'"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_hint(
    flags: list[str], error: str, incident: Path, home: Path
) -> None:
    for name, mode, text in (
        ("open", 0o644, TOKEN),
        ("short", 0o600, "hunter2"),
        ("empty", 0o600, "# none\n"),
    ):
        (home / name).write_text(text)
        (home / name).chmod(mode)
    done = subprocess.run(
        command(incident, *flags), capture_output=True, text=True, timeout=60, env=environment(home), cwd=home
    )
    assert done.returncode == 2, done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: {error}")
    assert second.startswith("hint: ")


def test_a_port_that_is_taken_is_said(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", HERE) as server:
        done = subprocess.run(
            command(incident, "--http", f"127.0.0.1:{server.port}"),
            capture_output=True, text=True, timeout=60, env=environment(home),
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: cannot listen on 127.0.0.1:{server.port}: Address already in use")


def test_it_stops_quietly(incident: Path, home: Path) -> None:
    with running(incident, home, "--http", HERE) as server:
        assert ask(server) == "cpu-contention"
    assert server.process.returncode == 0
    assert not [line for line in server.said if "Traceback" in line or "ERROR" in line]
