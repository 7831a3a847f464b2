"""Which nodes are meant."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ingero.errors import UsageError
from ingero.fleet.nodes import Node, expanded, parse_nodes


def test_a_list_is_read_in_order_and_each_node_once() -> None:
    found = parse_nodes(["a:8443,b", " https://c:1 ,A:8443", "[::1]:7"])
    assert [(each.host, each.port) for each in found] == [("a", 8443), ("b", 8080), ("c", 1), ("::1", 7)]
    assert [each.url for each in found][-1] == "https://[::1]:7"


def test_a_file_has_one_node_per_line(tmp_path: Path) -> None:
    file = tmp_path / "nodes.txt"
    file.write_text("# the cluster\na:1\n\nb:2  # the slow one\n")
    assert [each.name for each in parse_nodes([f"@{file}", "c:3"])] == ["a:1", "b:2", "c:3"]


@pytest.mark.parametrize(
    "text", ["a:99999", "a:b", "a b", "http://a:1", "ftp://a", "user@a:1", "a/b", "@/nowhere", "@/dev/zero"]
)
def test_what_is_no_node_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_nodes([text])


def test_without_tls_only_with_that_word() -> None:
    assert parse_nodes(["http://a:1", "b:2", "https://c:3"], plain=True)[0].url == "http://a:1"
    assert [each.secure for each in parse_nodes(["a:1", "https://c:3"], plain=True)] == [False, True]


def test_a_name_with_many_addresses_is_many_nodes() -> None:
    found = expanded(Node("pods.svc", 8080), lambda *_: ["10.0.0.1", "10.0.0.2"])
    assert [(each.url, each.host) for each in found] == [
        ("https://10.0.0.1:8080", "pods.svc"), ("https://10.0.0.2:8080", "pods.svc"),
    ]  # fmt: skip
    assert found[0].name == "pods.svc:8080 (10.0.0.1)"


def test_a_name_that_is_not_known_is_left_to_whoever_connects() -> None:
    def unknown(*_: object) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    assert expanded(Node("nowhere", 1), unknown) == [Node("nowhere", 1)]


def test_an_ipv4_and_an_ipv6_address_are_one_node() -> None:
    assert expanded(Node("localhost", 1)) == [Node("localhost", 1)]
    assert expanded(Node("127.0.0.1", 1), lambda *_: ["a", "b"]) == [Node("127.0.0.1", 1)]
