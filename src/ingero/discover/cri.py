"""Names of pods from containerd's or CRI-O's own socket, where no kubelet is asked.

One question (ListContainers) of the container runtime interface, over gRPC. Its answer is read by
hand: of each container the id and the labels that the kubelet gave it. Without grpcio (the extra
`otlp-grpc`) nobody is asked. Whoever answers slowly, wrongly or without end costs the names alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ingero.model.pods import Named
from ingero.units import clean

SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
)
METHOD = "/runtime.v1.RuntimeService/ListContainers"
TIMEOUT_S = 3.0
MAX_BYTES = 8 << 20
MAX_CONTAINERS = 4096
MAX_LABELS = 64
MAX_TEXT = 253
POD, NAMESPACE = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace"
UID, CONTAINER = "io.kubernetes.pod.uid", "io.kubernetes.container.name"
# Numbers of fields in runtime/v1/api.proto.
CONTAINERS, ID, LABELS, KEY, VALUE = 1, 1, 8, 1, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def names(sockets: Iterable[Path] = SOCKETS) -> dict[str, Named]:
    """By container id, from whoever listens. Never raises."""
    found: dict[str, Named] = {}
    for path in sockets:
        if path.is_socket():
            found |= named_in(_listed(path))
    return found


def _listed(path: Path) -> bytes:
    try:
        import grpc
    except ImportError:
        return b""
    limits = [("grpc.max_receive_message_length", MAX_BYTES), ("grpc.enable_http_proxy", 0)]
    try:
        with grpc.insecure_channel(f"unix://{path}", options=limits) as channel:
            answer = channel.unary_unary(METHOD)(b"", timeout=TIMEOUT_S)
    except (grpc.RpcError, ValueError):
        return b""
    return bytes(answer)


def named_in(answer: bytes) -> dict[str, Named]:
    """What a ListContainersResponse tells; what makes no sense ends it."""
    found: dict[str, Named] = {}
    for number, value in fields(answer):
        if number == CONTAINERS and isinstance(value, bytes) and len(found) < MAX_CONTAINERS:
            one = _container(value)
            if one is not None:
                found[one.container_id] = one
    return found


def _container(message: bytes) -> Named | None:
    number = ""
    labels: dict[str, str] = {}
    for field, value in fields(message):
        if field == ID and isinstance(value, bytes):
            number = _text(value)
        elif field == LABELS and isinstance(value, bytes) and len(labels) < MAX_LABELS:
            pair = {each: part for each, part in fields(value) if isinstance(part, bytes)}
            labels[_text(pair.get(KEY, b""))] = _text(pair.get(VALUE, b""))
    pod, namespace = labels.get(POD), labels.get(NAMESPACE)
    if not number or not pod or not namespace:
        return None
    told = {"name": labels.get(CONTAINER, ""), "pod.uid": labels.get(UID, "")}
    known = tuple(sorted((key, value) for key, value in told.items() if value))
    return Named(number, labels.get(CONTAINER), pod, namespace, labels=known)


def _text(raw: bytes) -> str:
    return clean(raw[: 4 * MAX_TEXT].decode("utf-8", "replace"), MAX_TEXT)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a protobuf message by number; ends where it is broken off."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        elif kind == BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                return
            yield tag >> 3, message[at : at + length]
            at += length
        else:
            return


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number there and where it ends; one that is broken off, or too long, ends the message."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        value |= (message[at] & 0x7F) << shift
        at += 1
        if not message[at - 1] & 0x80:
            return value, at
    return 0, len(message)
