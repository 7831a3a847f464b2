"""Nodes that misbehave, each in its own way: each is named, and the one that works has its answer kept."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ingero import __version__
from ingero.errors import UsageError
from ingero.fleet.asking import Limits, Question, Reply, Trust, ask_all
from ingero.fleet.failures import Problem
from ingero.fleet.nodes import Node, parse_nodes
from tests.fanout.conftest import Ask, Cluster
from tests.fleet_nodes import Authority, dashboard, misbehaving, record, request_of, response
from tests.servers import TOKEN

SQL = Question("query", body={"sql": "SELECT count(*) AS n FROM calls", "limit": 10})


def trust(authority: Authority, token: str | None = TOKEN, client: Path | None = None) -> Trust:
    context = ssl.create_default_context(cafile=authority.file)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if client is not None:
        context.load_cert_chain(client)
    return Trust(context, token)


def asked(nodes: str, trusted: Trust, seconds: float = 20, **more: Any) -> list[Reply]:
    return ask_all(parse_nodes([nodes]), SQL, trusted, Limits(seconds=seconds, **more))


def health(**more: Any) -> bytes:
    told = {"version": __version__, "now_ns": time.time_ns(), "instance": "x", "nodes": ["odd"]}
    return response(msgspec.json.encode(told | more))


def healthy_until_asked(then: Any, **more: Any) -> Any:
    """Says who it is, and answers the question with `then(connection)`."""

    def handle(connection: socket.socket) -> None:
        while request := request_of(connection):
            if b"/health" in request.partition(b"\r\n")[0]:
                connection.sendall(health(**more))
            else:
                then(connection)
                return

    return handle


def garbage(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(b"\x00\xff\x17 this is no HTTP at all \r\n\r\n" * 20)


def another_site(connection: socket.socket) -> None:
    while request_of(connection):
        connection.sendall(response(b"<html>It works!</html>"))


def silent(connection: socket.socket) -> None:
    request_of(connection)
    connection.recv(1)  # until the other side gives up


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b"[" * 0x10000 + b"\r\n")


def cut_off(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")


def not_json(connection: socket.socket) -> None:
    connection.sendall(response(b'{"columns": ["n"], "rows": 7}'))


def deep(connection: socket.socket) -> None:
    connection.sendall(response(b"[" * 100_000))


def packed(connection: socket.socket) -> None:
    connection.sendall(response(b"\x1f\x8b" + bytes(100), more="content-encoding: gzip\r\n"))


def elsewhere(connection: socket.socket) -> None:
    connection.sendall(response(b"", "302 Found", "location: https://127.0.0.1:1/\r\n"))


def unknown_question(connection: socket.socket) -> None:
    connection.sendall(response(b"Not Found", "404 Not Found"))


def endless_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"x-more: " + b"a" * 10_000 + b"\r\n")


@pytest.mark.parametrize(
    ("handle", "problem", "word"),
    [
        (garbage, "garbage", "not HTTP"),
        (another_site, "foreign", "who it is"),
        (healthy_until_asked(endless), "too-large", "larger than 1 MiB"),
        (healthy_until_asked(endless_head), "garbage", "not HTTP"),
        (healthy_until_asked(cut_off), "garbage", "not HTTP"),
        (healthy_until_asked(packed), "garbage", "packed"),
        (healthy_until_asked(elsewhere), "failed", "status 302"),
        (healthy_until_asked(unknown_question), "foreign", "does not know this question"),
    ],
)
def test_a_node_that_answers_wrongly_is_named(
    cluster: Cluster, authority: Authority, handle: Any, problem: str, word: str
) -> None:
    with misbehaving(handle, authority.sign("odd")) as odd:
        good, bad = asked(f"{cluster.nodes[0]},{odd}", trust(authority), answer_bytes=1 << 20)
    assert good.body is not None
    assert bad.failure is not None
    assert bad.failure.problem == problem
    assert word in bad.failure.why


@pytest.mark.parametrize("handle", [healthy_until_asked(not_json), healthy_until_asked(deep)])
def test_an_answer_of_the_wrong_shape_is_garbage_of_this_version_and_foreign_of_another(
    cluster: Cluster, authority: Authority, ask: Ask, handle: Any
) -> None:
    with misbehaving(handle, authority.sign("odd")) as odd:
        answer = ask("query", "--json", "--nodes", f"{cluster.nodes[0]},{odd}", "SELECT 1 AS a").json
    assert answer["rows"] == [{"node": "gpu-node-01", "a": 1}]
    assert answer["fleet"]["nodes"][1]["problem"] == "garbage"


def test_a_node_of_another_version_is_pointed_out(cluster: Cluster, authority: Authority, ask: Ask) -> None:
    def well(connection: socket.socket) -> None:
        connection.sendall(response(b'{"columns": ["a"], "rows": [{"a": 2}], "truncated": false}'))

    with misbehaving(healthy_until_asked(well, version="9.9"), authority.sign("odd")) as odd:
        answer = ask("query", "--json", "--nodes", f"{cluster.nodes[0]},{odd}", "SELECT 1 AS a").json
    assert answer["rows"] == [{"node": "gpu-node-01", "a": 1}, {"node": "odd", "a": 2}]
    assert f"{odd}: ingero 9.9, here {__version__}" in answer["fleet"]["notes"]
    with misbehaving(healthy_until_asked(not_json, version="9.9"), authority.sign("odd")) as odd:
        answer = ask("query", "--json", "--nodes", f"{cluster.nodes[0]},{odd}", "SELECT 1 AS a").json
    assert answer["fleet"]["nodes"][1]["problem"] == "foreign"
    assert "version 9.9" in answer["fleet"]["nodes"][1]["why"]


def test_a_node_that_is_slow_holds_nobody_up(cluster: Cluster, authority: Authority) -> None:
    with misbehaving(silent, authority.sign("odd")) as odd:
        slow, good = asked(f"{odd},{cluster.nodes[0]}", trust(authority), seconds=3)
    assert good.body is not None
    assert slow.failure is not None
    assert slow.failure.problem is Problem.SLOW
    assert "within 3 s" in slow.failure.why


@pytest.mark.parametrize(
    ("names", "expired", "word"),
    [(("127.0.0.1",), True, "expired"), (("somebody.else",), False, "match")],
)
def test_a_certificate_that_is_not_right_is_not_believed(
    cluster: Cluster, authority: Authority, names: tuple[str, ...], expired: bool, word: str
) -> None:
    signed = authority.sign("wrong", names, expired)
    with misbehaving(another_site, signed) as odd:
        bad, good = asked(f"{odd},{cluster.nodes[0]}", trust(authority))
    assert good.body is not None
    assert bad.failure is not None
    assert bad.failure.problem is Problem.CERTIFICATE
    assert word in bad.failure.why


def test_a_certificate_of_somebody_else_is_not_believed(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    with misbehaving(another_site, stranger.sign("odd")) as odd:
        (bad,) = asked(odd, trust(authority))
    assert bad.failure is not None
    assert bad.failure.problem is Problem.CERTIFICATE


def test_a_token_that_is_wrong_and_none_at_all_are_refused(cluster: Cluster, authority: Authority) -> None:
    for token in (None, "a-token-that-nobody-ever-gave-out"):
        (bad,) = asked(cluster.nodes[0], trust(authority, token))
        assert bad.failure is not None
        assert bad.failure.problem is Problem.REFUSED


def test_a_server_without_tls_is_only_asked_with_that_word_and_never_gets_the_token_elsewhere(
    authority: Authority, tmp_path: Path, ask: Ask
) -> None:
    db = record(tmp_path / "plain.db", "plain")
    with dashboard(db, tmp_path / "home", "--addr", "127.0.0.1:0", "--no-tls") as node:
        (bad,) = asked(node, trust(authority))
        assert bad.failure is not None
        assert bad.failure.problem is Problem.TLS
        assert "does not speak TLS" in bad.failure.why
        assert ask("query", "--nodes", f"http://{node}", "SELECT 1").code == 2
        assert len(ask("query", "--json", "--no-tls", "--nodes", node, "SELECT 1").json["rows"]) == 1
    with pytest.raises(UsageError, match="readable"):
        ask_all(parse_nodes(["10.0.0.1:80"], plain=True), SQL, trust(authority))


def test_both_sides_show_a_certificate(authority: Authority, tmp_path: Path) -> None:
    db = record(tmp_path / "mutual.db", "mutual")
    signed = str(authority.sign("server"))
    words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed, "--client-ca", str(authority.file))
    stranger = Authority(tmp_path, "stranger").sign("client")
    with dashboard(db, tmp_path / "home", *words, token=None) as node:
        (good,) = asked(node, trust(authority, None, authority.sign("client")))
        (none,) = asked(node, trust(authority, None))
        (wrong,) = asked(node, trust(authority, None, stranger))
    assert good.body is not None
    for bad in (none, wrong):
        assert bad.failure is not None
        assert bad.failure.problem in (Problem.TLS, Problem.REFUSED)
        assert "cert" in bad.failure.hint


@pytest.fixture(scope="module")
def everywhere(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server on every address, called fleet.test."""
    folder = tmp_path_factory.mktemp("everywhere")
    signed = str(authority.sign("everywhere", ("fleet.test",)))
    words = ("--addr", "0.0.0.0:0", "--cert", signed, "--key", signed, "--allowed-host", "fleet.test")
    with dashboard(record(folder / "a.db", "a"), folder / "home", *words) as node:
        yield node.rpartition(":")[2]


def test_a_name_with_many_addresses_is_asked_at_each_by_that_name(
    everywhere: str, authority: Authority
) -> None:
    replies = ask_all(
        [Node("fleet.test", int(everywhere))], SQL, trust(authority), Limits(seconds=20),
        resolve=lambda *_: ["127.0.0.1", "127.0.0.9"],
    )  # fmt: skip
    assert [reply.node.address for reply in replies] == ["127.0.0.1", "127.0.0.9"]
    assert replies[0].body is not None
    assert replies[1].failure is not None
    assert replies[1].failure.problem is Problem.SAME  # one server: its rows are not counted twice
    other = [replace(reply.node, host="another.test", address="127.0.0.1") for reply in replies[:1]]
    (bad,) = ask_all(other, SQL, trust(authority), resolve=lambda *_: [])
    assert bad.failure is not None
    assert bad.failure.problem is Problem.CERTIFICATE


def test_a_node_that_claims_to_be_another_makes_the_answer_partial(authority: Authority, ask: Ask) -> None:
    def well(connection: socket.socket) -> None:
        connection.sendall(response(b'{"columns": ["a"], "rows": [{"a": 2}], "truncated": false}'))

    signed, other = authority.sign("odd"), authority.sign("claims")
    with (
        misbehaving(healthy_until_asked(well, instance="one"), signed) as odd,
        misbehaving(healthy_until_asked(well, instance="one"), signed) as same,
        misbehaving(healthy_until_asked(well, instance="one"), other) as claims,
    ):
        both = ask("query", "--json", "--strict", "--nodes", f"{odd},{same}", "SELECT 1 AS a")
        assert both.code == 0
        assert [each["problem"] for each in both.json["fleet"]["nodes"]] == [None, "same"]
        said = ask("query", "--json", "--strict", "--nodes", f"{odd},{claims}", "SELECT 1 AS a")
    assert said.code == 4
    assert said.json["fleet"]["partial"]
    assert "another certificate" in said.json["fleet"]["nodes"][1]["why"]


def test_a_name_nobody_knows_is_down(authority: Authority) -> None:
    (bad,) = asked("does-not-exist.invalid:1", trust(authority))
    assert bad.failure is not None
    assert bad.failure.problem is Problem.DOWN


def test_a_recording_that_cannot_be_read_is_the_nodes_own_failure(
    cluster: Cluster, authority: Authority, tmp_path: Path, ask: Ask
) -> None:
    signed = str(authority.sign("empty"))
    words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed)
    with dashboard(tmp_path / "absent.db", tmp_path / "home", *words) as node:
        answer = ask("query", "--json", "--nodes", f"{node},{cluster.nodes[0]}", "SELECT 1").json
    assert answer["fleet"]["nodes"][0]["problem"] == "failed"
    assert "there is no database" in answer["fleet"]["nodes"][0]["why"]
    assert len(answer["rows"]) == 1


def test_all_answers_together_are_bounded(cluster: Cluster, authority: Authority) -> None:
    replies = asked(cluster.listed, trust(authority), at_once=1, all_bytes=100)
    assert [reply.failure and reply.failure.problem for reply in replies] == [None, "too-large", "too-large"]


@pytest.mark.parametrize("into_files", [False, True])
def test_answers_that_come_at_the_same_time_are_bounded_together_and_leave_no_part_behind(
    authority: Authority, tmp_path: Path, into_files: bool
) -> None:
    """32 nodes send half of their answers, and go on when all have: no bound that was fixed before knew."""
    nodes, part = 32, bytes(10_000)
    half = threading.Barrier(nodes)

    def in_halves(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\ncontent-length: {2 * len(part)}\r\n\r\n".encode() + part)
        half.wait(20)
        connection.sendall(part)

    def told(node: Node) -> Path:
        return tmp_path / f"{node.port}.db"

    def whole(connection: socket.socket) -> None:
        while request := request_of(connection):
            if b"/health" in request.partition(b"\r\n")[0]:
                connection.sendall(health(instance=str(connection.getsockname())))
            else:
                in_halves(connection)

    signed = authority.sign("odd")
    with ExitStack() as stack:
        each = [stack.enter_context(misbehaving(whole, signed)) for _ in range(nodes)]
        replies = ask_all(
            parse_nodes([",".join(each)]),
            Question("recording", into=told) if into_files else SQL,
            trust(authority),
            Limits(seconds=60, at_once=32, answer_bytes=30_000, all_bytes=40 * len(part)),
        )
    good = [reply for reply in replies if reply.answered]
    bad = [reply.failure for reply in replies if reply.failure is not None]
    assert 2 * len(part) * len(good) <= 40 * len(part)
    assert {failure.problem for failure in bad} == {Problem.TOO_LARGE}
    assert "all nodes together" in bad[0].why
    assert sorted(tmp_path.glob("*.db")) == sorted(reply.file for reply in good if reply.file is not None)


def test_no_more_are_asked_at_once_than_allowed(authority: Authority) -> None:
    open_now: list[int] = [0]
    most: list[int] = [0]

    def counted(connection: socket.socket) -> None:
        open_now[0] += 1
        most[0] = max(most[0], open_now[0])
        try:
            healthy_until_asked(not_json)(connection)
            while connection.recv(1):
                pass
        finally:
            open_now[0] -= 1

    signed = authority.sign("odd")
    with (
        misbehaving(counted, signed) as a,
        misbehaving(counted, signed) as b,
        misbehaving(counted, signed) as c,
    ):
        asked(f"{a},{b},{c}", trust(authority), at_once=1)
    assert most[0] == 1
