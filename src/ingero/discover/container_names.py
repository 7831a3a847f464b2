"""Names and labels of containers, asked of Docker, Podman, containerd or CRI-O on this machine.

The first two answer the same question on a Unix socket. Where nobody listens, Docker's own file of a
container and Podman's list of them say the name. Nothing here leaves the machine.
"""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from ingero.discover import kubelet
from ingero.model.pods import NamedContainer
from ingero.units import clean

T = TypeVar("T")
SOCKETS = (Path("/run/docker.sock"), Path("/run/podman/podman.sock"))
DOCKER_STATE = Path("/var/lib/docker/containers")
PODMAN_LISTS = (
    Path("/var/lib/containers/storage/overlay-containers/containers.json"),
    Path("/var/lib/containers/storage/vfs-containers/containers.json"),
)
TIMEOUT_S = 3.0
MAX_BYTES = 8 << 20
MAX_CONTAINERS = 4096
MAX_LABELS = 32
MAX_TEXT = 128


class _OnSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


class _Listed(msgspec.Struct):
    id: str = msgspec.field(name="Id")
    names: list[str] | None = msgspec.field(default=None, name="Names")
    image: str | None = msgspec.field(default=None, name="Image")
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class _Settings(msgspec.Struct):
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")
    image: str | None = msgspec.field(default=None, name="Image")


class _DockerState(msgspec.Struct):
    name: str = msgspec.field(name="Name")
    config: _Settings = msgspec.field(default_factory=_Settings, name="Config")


class _PodmanEntry(msgspec.Struct):
    id: str
    names: list[str] | None = None


CRI_SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
)


def names(
    wanted: Iterable[str],
    sockets: Iterable[Path] = SOCKETS,
    docker_state: Path = DOCKER_STATE,
    podman_lists: Iterable[Path] = PODMAN_LISTS,
    cri_sockets: Iterable[Path] = CRI_SOCKETS,
) -> dict[str, NamedContainer]:
    """Those of the wanted containers that somebody has a name for. Never raises."""
    missing = {each for each in wanted if re.fullmatch(r"[0-9a-f]{64}", each)}
    found: dict[str, NamedContainer] = {}
    for path in sockets:
        if missing - found.keys() and path.is_socket():
            found |= {each: one for each, one in _listed(path).items() if each in missing}
    if missing - found.keys():
        entries = {each.id: each for path in podman_lists for each in _entries(path)}
        for each in missing - found.keys():
            one = _from_file(docker_state / each / "config.v2.json", each)
            if one is None and each in entries:
                one = _named(each, _name(entries[each].names), None, None)
            if one is not None:
                found[each] = one
    if missing - found.keys():
        pods = pod_names(cri_sockets)
        found |= {each: pods[each] for each in missing - found.keys() if each in pods}
    return found


def _listed(path: Path) -> dict[str, NamedContainer]:
    connection = _OnSocket(path)
    try:
        connection.request("GET", "/containers/json")
        response = connection.getresponse()
        body = response.read(MAX_BYTES + 1)
        if response.status != 200 or len(body) > MAX_BYTES:
            return {}
        listed = msgspec.json.decode(body, type=list[_Listed])
    except (OSError, http.client.HTTPException, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    finally:
        connection.close()
    return {
        each.id: _named(each.id, _name(each.names), each.image, each.labels)
        for each in listed[:MAX_CONTAINERS]
    }


def _from_file(path: Path, number: str) -> NamedContainer | None:
    state = _decoded(path, _DockerState)
    if state is None:
        return None
    return _named(number, _name([state.name]), state.config.image, state.config.labels)


def _entries(path: Path) -> list[_PodmanEntry]:
    return _decoded(path, list[_PodmanEntry]) or []


def _decoded(path: Path, kind: type[T]) -> T | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        return msgspec.json.decode(raw, type=kind) if len(raw) <= MAX_BYTES else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _name(names: list[str] | None) -> str | None:
    return clean(names[0].lstrip("/"), MAX_TEXT) or None if names else None


def _named(number: str, name: str | None, image: str | None, labels: dict[str, str] | None) -> NamedContainer:
    own = sorted((labels or {}).items())[:MAX_LABELS]
    told = {f"label:{clean(key, MAX_TEXT)}": clean(value, MAX_TEXT) for key, value in own}
    told |= {"name": name} if name else {}
    told |= {"image": clean(image, MAX_TEXT)} if image else {}
    return NamedContainer(number, name, labels=tuple(sorted(told.items())))


# Names of pods from containerd's or CRI-O's own socket, where no kubelet is asked.
#
# Two questions of the container runtime interface, over gRPC: containers, and the pods ("sandboxes")
# they are in. The answers are read by hand. Labels are the pod's; the attempt of a container is how
# often it was started again. Without grpcio (the extra `otlp-grpc`) nobody is asked. Whoever answers
# slowly, wrongly or without end costs the names alone.


LIST_CONTAINERS = "/runtime.v1.RuntimeService/ListContainers"
LIST_PODS = "/runtime.v1.RuntimeService/ListPodSandbox"
MAX_POD_LABELS = 64
MAX_POD_TEXT = 253
OF_KUBERNETES = "io.kubernetes."  # labels that the kubelet adds to those of the pod
POD, NAMESPACE = "io.kubernetes.pod.name", "io.kubernetes.pod.namespace"
UID, CONTAINER = "io.kubernetes.pod.uid", "io.kubernetes.container.name"
# Numbers of fields in runtime/v1/api.proto: of both answers, of Container and ContainerMetadata, of
# PodSandbox and PodSandboxMetadata, and of an entry of a map.
ITEMS, ID = 1, 1
OF_POD, METADATA, CREATED, LABELS = 2, 3, 7, 8
ATTEMPT = 2
POD_METADATA, POD_LABELS = 2, 5
POD_NAME, POD_UID, POD_NAMESPACE = 1, 2, 3
KEY, VALUE = 1, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class _PodTold(NamedTuple):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str]  # its own, and those of the kubelet


def pod_names(sockets: Iterable[Path] = CRI_SOCKETS) -> dict[str, NamedContainer]:
    """By container id, from whoever listens. Never raises."""
    found: dict[str, NamedContainer] = {}
    for path in sockets:
        if path.is_socket():
            found |= named_in(*_listed_by_runtime(path))
    return found


def _listed_by_runtime(path: Path) -> tuple[bytes, bytes]:
    """Its containers and its pods; nothing where it does not answer."""
    try:
        import grpc
    except ImportError:
        return b"", b""
    limits = [("grpc.max_receive_message_length", MAX_BYTES), ("grpc.enable_http_proxy", 0)]
    containers = pods = b""
    try:
        with grpc.insecure_channel(f"unix://{path}", options=limits) as channel:
            containers = channel.unary_unary(LIST_CONTAINERS)(b"", timeout=TIMEOUT_S)
            pods = channel.unary_unary(LIST_PODS)(b"", timeout=TIMEOUT_S)
    except (grpc.RpcError, ValueError):
        pass
    return bytes(containers), bytes(pods)


def named_in(containers: bytes, pods: bytes = b"") -> dict[str, NamedContainer]:
    """What a ListContainersResponse and a ListPodSandboxResponse tell; what makes no sense ends each."""
    told = _pods(pods)
    found: dict[str, NamedContainer] = {}
    for message in _items(containers):
        one = _container(message, told)
        if one is not None and len(found) < MAX_CONTAINERS:
            found[one.container_id] = one
    return found


def _items(answer: bytes) -> Iterator[bytes]:
    for number, value in fields(answer):
        if number == ITEMS and isinstance(value, bytes):
            yield value


def _pods(answer: bytes) -> dict[str, _PodTold]:
    """By the sandbox's id."""
    found: dict[str, _PodTold] = {}
    for message in _items(answer):
        number, name, namespace, uid = "", "", "", ""
        labels: dict[str, str] = {}
        for field, value in fields(message):
            if not isinstance(value, bytes):
                continue
            if field == ID:
                number = _text(value)
            elif field == POD_METADATA:
                texts = {each: _text(part) for each, part in fields(value) if isinstance(part, bytes)}
                name, namespace, uid = (texts.get(each, "") for each in (POD_NAME, POD_NAMESPACE, POD_UID))
            elif field == POD_LABELS:
                _add_label(labels, value)
        if len(found) < MAX_CONTAINERS:
            found[number] = _PodTold(name, namespace, uid, labels)
    return found


def _container(message: bytes, pods: dict[str, _PodTold]) -> NamedContainer | None:
    """None: it is in no pod. What the kubelet wrote on the container counts where its pod is not told of."""
    number, sandbox = "", ""
    attempt = created = 0
    labels: dict[str, str] = {}
    for field, value in fields(message):
        if isinstance(value, int):
            created = value if field == CREATED else created
        elif field == ID:
            number = _text(value)
        elif field == OF_POD:
            sandbox = _text(value)
        elif field == METADATA:
            attempt = next((n for each, n in fields(value) if each == ATTEMPT and isinstance(n, int)), 0)
        elif field == LABELS:
            _add_label(labels, value)
    pod = pods.get(sandbox, _PodTold("", "", "", {}))
    name, namespace = pod.name or labels.get(POD), pod.namespace or labels.get(NAMESPACE)
    if not number or not name or not namespace:
        return None
    own = {
        key[:MAX_TEXT]: value[:MAX_TEXT]
        for key, value in sorted(pod.labels.items())
        if not key.startswith(OF_KUBERNETES)
    }
    told = {f"label:{key}": own[key] for key in list(own)[:MAX_LABELS]}
    told |= {"name": labels.get(CONTAINER, ""), "pod.uid": pod.uid or labels.get(UID, "")}
    return NamedContainer(
        number,
        labels.get(CONTAINER),
        name,
        namespace,
        kubelet.job_of(own, None),
        tuple(sorted((key, value) for key, value in told.items() if value)),
        min(attempt, kubelet.MOST_RESTARTS),
        created if 0 < created < kubelet.LAST_NS else None,
    )


def _add_label(labels: dict[str, str], entry: bytes) -> None:
    if len(labels) < MAX_POD_LABELS:
        pair = {each: part for each, part in fields(entry) if isinstance(part, bytes)}
        labels[_text(pair.get(KEY, b""))] = _text(pair.get(VALUE, b""))


def _text(raw: bytes) -> str:
    return clean(raw[: 4 * MAX_POD_TEXT].decode("utf-8", "replace"), MAX_POD_TEXT)


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
