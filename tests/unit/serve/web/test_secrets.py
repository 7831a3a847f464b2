"""Certificates, tokens and the files they are in."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from ingero.errors import StoreError, UsageError
from ingero.serve.web import certificates, sessions
from ingero.serve.web.connections import address_of, is_ours, user_of
from ingero.serve.web.private_files import Folder, read_private, write_whole
from ingero.serve.web.server import Address, names_of, parse_address

NAMES = ["localhost", "127.0.0.1", "::1", "gpu-node-01"]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "a" / "server")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    ours, theirs = socket.socketpair()

    def answer() -> None:
        try:
            with server.wrap_socket(ours, server_side=True) as secure:
                secure.recv(1)
        except (ssl.SSLError, OSError):
            ours.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with client.wrap_socket(theirs, server_hostname=name) as secure:
            return secure.version()
    finally:
        thread.join()


@pytest.mark.parametrize("name", NAMES)
def test_the_certificate_made_is_trusted_under_each_name(name: str, folder: Folder) -> None:
    made = certificates.own_certificate(folder, NAMES)
    client = ssl.create_default_context(cafile=str(made.chain))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shake_hands(certificates.tls_context(made), client, name) == "TLSv1.3"


def test_the_certificate_made_is_not_trusted_under_another_name_or_by_others(folder: Folder) -> None:
    made = certificates.own_certificate(folder, NAMES)
    server = certificates.tls_context(made)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, ssl.create_default_context(cafile=str(made.chain)), "evil.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, ssl.create_default_context(), "localhost")


def test_it_is_made_once_and_again_for_a_new_name_or_near_its_end(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = certificates.own_certificate(folder, NAMES).chain.read_bytes()
    assert certificates.own_certificate(folder, NAMES[:2]).chain.read_bytes() == first
    second = certificates.own_certificate(folder, [*NAMES, "new.example"]).chain.read_bytes()
    assert second != first
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=340)
    monkeypatch.setattr(certificates, "_now", lambda: later)
    assert certificates.own_certificate(folder, NAMES).chain.read_bytes() != second


def test_secrets_are_private_and_their_folder_is(folder: Folder) -> None:
    made = certificates.own_certificate(folder, NAMES)
    assert b"PRIVATE KEY" not in made.chain.read_bytes()
    for path, mode in ((made.key, 0o600), (sessions.own_token(folder), 0o600), (folder.path, 0o700)):
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_folder_that_others_can_change_holds_no_secret(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StoreError, match="can be changed by others"):
        write_whole(Folder(tmp_path / "open"), "token", b"x")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StoreError):
        write_whole(Folder(tmp_path / "link"), "token", b"x")


def test_writing_replaces_a_link_instead_of_following_it(folder: Folder, tmp_path: Path) -> None:
    write_whole(folder, "token", b"old")
    (tmp_path / "victim").write_text("precious")
    (folder.path / "token").unlink()
    (folder.path / "token").symlink_to(tmp_path / "victim")
    write_whole(folder, "token", b"new")
    assert (tmp_path / "victim").read_text() == "precious"
    assert read_private(folder.path / "token", "token") == b"new"


@pytest.mark.parametrize(
    "mode, fine", [(0o600, True), (0o400, True), (0o440, True), (0o644, False), (0o620, False)]
)
def test_a_secret_that_others_can_read_is_refused(mode: int, fine: bool, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("x")
    path.chmod(mode)
    if fine:
        assert read_private(path, "key") == b"x"
    else:
        with pytest.raises(UsageError, match="is open to others"):
            read_private(path, "key")


def test_a_pipe_in_place_of_a_secret_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(UsageError, match="not a plain file"):
        read_private(tmp_path / "key", "key")


def test_only_a_right_token_is_accepted() -> None:
    known = sessions.Tokens(["a" * 20, "b" * 20])
    assert known.accept(b"a" * 20)
    assert known.accept(b"b" * 20)
    for wrong in (b"", b"a" * 19, b"a" * 21, b"c" * 20, b"\xff" * 20):
        assert not known.accept(wrong)
    assert not sessions.Tokens([]).accept(b"")


def test_the_first_variable_that_is_set_counts() -> None:
    environ = {"A": "", "B": "b" * 20, "C": "c" * 20}
    assert sessions.from_environment(environ, ["A", "B", "C"]) == ["b" * 20]
    assert sessions.from_environment({}, ["A"]) == []
    for poor in ("short", "with a space in it", "ünicode-0123456789"):
        with pytest.raises(UsageError, match="too easy"):
            sessions.from_environment({"A": poor}, ["A"])


@pytest.mark.parametrize("family, host", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_tells_whose_connection_it_is(family: int, host: str) -> None:
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} here")
    with server, socket.create_connection(server.getsockname()[:2]) as client:
        local, remote = client.getsockname()[:2], server.getsockname()[:2]
        assert user_of(local, remote) == os.geteuid()
        assert is_ours(local, remote)
        assert user_of((host, 1), remote) is None
        assert not is_ours((host, 1), remote)
        assert not is_ours(None, remote)


def test_an_address_is_read_however_it_is_spelt() -> None:
    assert str(address_of("::ffff:10.0.0.1")) == "10.0.0.1"
    assert str(address_of("fe80::1%eth0")) == "fe80::1"
    assert address_of("localhost") is None


@pytest.mark.parametrize(
    "text, host, port, loopback",
    [
        (":8443", "", 8443, False), ("127.0.0.1:0", "127.0.0.1", 0, True), ("[::1]:8443", "::1", 8443, True),
        ("localhost:1", "localhost", 1, True), ("0.0.0.0:1", "0.0.0.0", 1, False),
        ("127.9.9.9:1", "127.9.9.9", 1, True),
        ("gpu-node-01:65535", "gpu-node-01", 65535, False), ("[::]:1", "::", 1, False),
    ],
)  # fmt: skip
def test_where_to_listen_is_read(text: str, host: str, port: int, loopback: bool) -> None:
    address = parse_address(text, "--http")
    assert (address.host, address.port, address.loopback) == (host, port, loopback)


@pytest.mark.parametrize("text", ["", "8443", "::1:8443", "x:", "x:y", ":-1", ":65536", ":8 443", "x:１"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--http: not an address"):
        parse_address(text, "--http")


def test_a_server_knows_its_names() -> None:
    assert names_of(Address("127.0.0.1", 1)) == ["localhost", "127.0.0.1", "::1"]
    everywhere = names_of(Address("", 1), ["GPU.example"])
    assert everywhere[-1] == "gpu.example"
    assert socket.gethostname().lower() in everywhere
    assert "0.0.0.0" not in names_of(Address("0.0.0.0", 1))
