"""A container runtime of the tests: a real gRPC server on a Unix socket that tells of containers and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ingero.discover import container_names

CREATED = 1_700_000_000_000_000_000
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


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | container_names.VARINT) + varint(value)


def entries(field: int, pairs: dict[str, str]) -> bytes:
    return b"".join(part(field, part(1, k.encode()) + part(2, v.encode())) for k, v in pairs.items())


def container(
    name: str, labels: dict[str, str], attempt: int = 0, created: int = CREATED, of_pod: bytes = b"sandbox"
) -> bytes:
    """As the runtime writes it, with fields that nobody reads."""
    metadata = part(1, labels.get(container_names.CONTAINER, "").encode()) + number(2, attempt)
    return part(
        1,
        part(1, name.encode()) + part(2, of_pod) + part(3, metadata) + part(4, part(1, b"sha256:1"))
        + part(5, b"sha256:1") + number(6, 1) + number(7, created) + entries(8, labels)
        + entries(9, {"io.kubernetes.container.restartCount": str(attempt)}),
    )  # fmt: skip


def sandbox(
    labels: dict[str, str], name: str = "trainer-0", namespace: str = "team-a", uid: str = "u-1",
    of: bytes = b"sandbox",
) -> bytes:  # fmt: skip
    """A pod as the runtime writes it."""
    metadata = part(1, name.encode()) + part(2, uid.encode()) + part(3, namespace.encode()) + number(4, 0)
    own = {key: value for key, value in POD.items() if key != container_names.CONTAINER}
    return part(
        1,
        part(1, of) + part(2, metadata) + number(3, 0) + number(4, CREATED) + entries(5, own | labels)
        + entries(6, {"kubernetes.io/config.source": "api"}) + part(7, b"runc"),
    )  # fmt: skip


@contextmanager
def runtime(
    path: Path, containers: Callable[[], bytes], pods: Callable[[], bytes] = bytes
) -> Iterator[list[str]]:
    """What it was asked."""
    import grpc

    answers = {container_names.LIST_CONTAINERS: containers, container_names.LIST_PODS: pods}
    asked: list[str] = []

    class Handler(grpc.GenericRpcHandler):  # type: ignore[name-defined]
        def service(self, details: Any) -> Any:
            asked.append(details.method)
            answer = answers[details.method]
            return grpc.unary_unary_rpc_method_handler(lambda request, context: answer())

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Handler()])
    server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield asked
    finally:
        server.stop(None).wait()
