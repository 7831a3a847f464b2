"""Pods by the word of a real gRPC server that speaks the runtime interface: right, wrong and hostile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero.discover import container_names

grpc = pytest.importorskip("grpc")
A, B = "a" * 64, "b" * 64
POD = {
    container_names.POD: "trainer-0",
    container_names.NAMESPACE: "team-a",
    container_names.UID: "u-1",
    container_names.CONTAINER: "trainer",
}


def varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def part(number: int, value: bytes) -> bytes:
    return varint(number << 3 | container_names.BYTES) + varint(len(value)) + value


def container(number: str, labels: dict[str, str]) -> bytes:
    """As the runtime writes it, with fields that nobody reads."""
    pairs = [
        part(container_names.LABELS, part(1, k.encode()) + part(2, v.encode())) for k, v in labels.items()
    ]
    state = varint(6 << 3 | container_names.VARINT) + varint(1)
    created = varint(7 << 3 | container_names.VARINT) + varint(1_700_000_000_000_000_000)
    return part(
        1, part(container_names.ID, number.encode()) + part(2, b"sandbox") + state + created + b"".join(pairs)
    )


@contextmanager
def runtime(path: Path, answer: Callable[[], bytes]) -> Iterator[list[str]]:
    """A real gRPC server on a Unix socket; what it was asked."""
    asked: list[str] = []

    class Handler(grpc.GenericRpcHandler):  # type: ignore[name-defined]
        def service(self, details: Any) -> Any:
            asked.append(details.method)
            return grpc.unary_unary_rpc_method_handler(lambda request, context: answer())

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Handler()])
    server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield asked
    finally:
        server.stop(None).wait()


def test_pods_are_named_with_one_question(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with runtime(path, lambda: container(A, POD) + container(B, {"app": "no pod"})) as asked:
        found = container_names.pod_names([path])
    assert asked == [container_names.METHOD]
    assert found.keys() == {A}
    one = found[A]
    assert (one.pod, one.namespace, one.name) == ("trainer-0", "team-a", "trainer")
    assert dict(one.labels) == {"name": "trainer", "pod.uid": "u-1"}


def test_it_is_asked_only_about_containers_that_nobody_else_names(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with runtime(path, lambda: container(A, POD)) as asked:
        nobody = {"sockets": (), "docker_state": tmp_path, "podman_lists": (), "cri_sockets": (path,)}
        assert container_names.names(set(), **nobody) == {}
        assert asked == []
        assert container_names.names({A, B}, **nobody).keys() == {A}


def test_slow_away_or_too_large_costs_the_names_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, over = tmp_path / "s", threading.Event()
    monkeypatch.setattr(container_names, "TIMEOUT_S", 0.2)
    with runtime(path, lambda: b"late" * over.wait(20)):
        assert container_names.pod_names([path]) == {}
        over.set()
    assert container_names.pod_names([path, tmp_path / "none"]) == {}
    monkeypatch.setattr(container_names, "MAX_BYTES", 1000)
    with runtime(tmp_path / "large", lambda: container(A, POD | {"x": "y" * 2000})):
        assert container_names.pod_names([tmp_path / "large"]) == {}


def test_hostile_names_are_cleaned_and_cut() -> None:
    bad = POD | {container_names.POD: "\x1b]0;pwned\x07a\n" + "x" * 9000} | {f"k{n}": "v" for n in range(500)}
    (found,) = container_names.named_in(container(A, bad)).values()
    assert found.pod is not None
    assert len(found.pod) <= container_names.MAX_POD_TEXT
    assert not [letter for letter in found.pod if ord(letter) < 32]


@given(st.binary(max_size=200), st.integers(0, 300))
def test_whatever_is_answered_is_names_or_none(noise: bytes, cut: int) -> None:
    whole = container(A, POD)
    for answer in (noise, whole[:cut], whole[:cut] + noise):
        assert isinstance(container_names.named_in(answer), dict)
