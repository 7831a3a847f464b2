"""The pods of this node, asked of its kubelet: one request, a bounded answer, hostile texts cleaned.

The kubelet is asked at `/pods`, by address, with the service account's token where the way
is encrypted; a token never travels in the clear. Nobody is asked who was not configured.
What pods call themselves is chosen by their users. Asking may take long or fail: the caller
has a thread for it.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ingero.model.pods import Ended, Pod, PodContainer
from ingero.model.pods import KubeletAccess as Access
from ingero.model.window import Labels
from ingero.units import clean

MAX_ANSWER_BYTES = 16 << 20  # 250 pods with long specifications are 5 MiB
MAX_PODS = 1024
MAX_CONTAINERS = 64  # of one pod
MAX_LABELS = 32  # of one pod
MAX_NAME, MAX_LABEL = 253, 128
MOST_RESTARTS = 1 << 31
TOO_SLOW = "the kubelet answers too slowly"
LAST_NS = 1 << 63  # what a database can hold
# Labels of operators that say which training job made a pod; they come before the owner.
JOB_LABELS = (
    "training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name", "ray.io/cluster",
    "volcano.sh/job-name", "batch.kubernetes.io/job-name", "job-name",
)  # fmt: skip


class KubeletError(Exception):
    """Why there are no names from the kubelet, in a line."""


# --- asking -----------------------------------------------------------------------------


def ask(access: Access, now: Callable[[], float] = time.monotonic) -> list[Pod]:
    """Every pod on this node. Raises KubeletError."""
    return pods_of(fetch(access, now))


def fetch(access: Access, now: Callable[[], float] = time.monotonic) -> bytes:
    deadline = now() + access.timeout_s
    try:
        connection, path, headers = _prepared(access)
        try:
            connection.request("GET", path, headers=headers)
            with _hung_up_after(connection.sock, deadline - now()):
                response = connection.getresponse()
            if now() > deadline:
                raise KubeletError(TOO_SLOW)
            if response.status != 200:
                raise KubeletError(_refused(access, response.status))
            return _body(response, deadline, now)
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        raise KubeletError(
            f"the kubelet's certificate is not trusted: {clean(error.verify_message, 80)}"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        if now() > deadline:
            raise KubeletError(TOO_SLOW) from error
        why = clean(str(error), 100) or type(error).__name__
        raise KubeletError(f"the kubelet at {clean(access.url, 80)} does not answer: {why}") from error


@contextmanager
def _hung_up_after(connected: socket.socket, seconds: float) -> Iterator[None]:
    """A socket's own limit is for each byte, and headers may come one by one."""

    def hang_up() -> None:
        with suppress(OSError):  # the other side was quicker
            # The plain socket's way: that of TLS would take the session from who reads in it.
            socket.socket.shutdown(connected, socket.SHUT_RDWR)

    clock = threading.Timer(max(seconds, 0.0), hang_up)
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def _refused(access: Access, status: int) -> str:
    hints = {
        401: ": it wants a token (kubernetes.token_file)",
        403: ": the service account may not get nodes/proxy",
    }
    return f"the kubelet at {clean(access.url, 80)} answers {status}{hints.get(status, '')}"


def _prepared(access: Access) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    parts = urlsplit(bracketed(access.url if "//" in access.url else f"https://{access.url}"))
    host, path = parts.hostname or "", parts.path.rstrip("/") + "/pods"
    headers = {"Accept": "application/json", "User-Agent": "ingero"}
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port or 10255, timeout=access.timeout_s), path, headers
    if parts.scheme != "https":
        raise ValueError("its address is neither http nor https")
    context = ssl.create_default_context(cafile=access.ca_file)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.token_file:  # read anew each time: tokens of service accounts are renewed
        headers["Authorization"] = f"Bearer {Path(access.token_file).read_text('utf-8').strip()}"
    port = parts.port or 10250
    return http.client.HTTPSConnection(host, port, timeout=access.timeout_s, context=context), path, headers


def bracketed(url: str) -> str:
    """An IPv6 address as the downward API gives it has no brackets: https://fd00::7:10250."""
    return re.sub(r"^(https?://)([0-9a-fA-F:.]*:[0-9a-fA-F:.]*):([0-9]+)(?=/|$)", r"\1[\2]:\3", url)


def _body(response: http.client.HTTPResponse, deadline: float, now: Callable[[], float]) -> bytes:
    parts, size = [], 0
    while part := response.read1(1 << 16):
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise KubeletError(f"the kubelet's answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
        if now() > deadline:
            raise KubeletError(TOO_SLOW)
        parts.append(part)
    return b"".join(parts)


# --- understanding --------------------------------------------------------------------------


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str] | None = None
    annotations: dict[str, msgspec.Raw] | None = None
    owner_references: list[_Owner] | None = None


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int | None = None
    reason: str | None = None
    finished_at: str | None = None


class _ContainerState(msgspec.Struct):
    terminated: _Terminated | None = None


class _Status(msgspec.Struct, rename="camel"):
    name: str
    restart_count: int = 0
    container_id: str | None = msgspec.field(default=None, name="containerID")
    last_state: _ContainerState | None = None
    state: _ContainerState | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    container_statuses: list[_Status] | None = None
    init_container_statuses: list[_Status] | None = None
    ephemeral_container_statuses: list[_Status] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _PodList(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


def pods_of(answer: bytes) -> list[Pod]:
    """What the answer tells; a pod that makes no sense is left out, an answer that makes none is an error."""
    try:
        told = msgspec.json.decode(answer, type=_PodList)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise KubeletError(f"the kubelet's answer is no list of pods: {clean(str(error), 80)}") from error
    if (
        told.items is None and told.kind != "PodList"
    ):  # somebody else's answer; that of an empty node has a kind
        raise KubeletError(
            f"the kubelet's answer is no list of pods: {clean(told.kind, 40) or 'it has no items'}"
        )
    return list(_pods((told.items or [])[:MAX_PODS]))


def _pods(items: list[msgspec.Raw]) -> Iterator[Pod]:
    for item in items:
        try:
            yield _pod(msgspec.json.decode(item, type=_Pod))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue


def _pod(told: _Pod) -> Pod:
    meta, status = told.metadata, told.status
    labels = {clean(k, MAX_LABEL): clean(v, MAX_LABEL) for k, v in sorted((meta.labels or {}).items())}
    owner = _owner(meta, labels)
    uid = clean(meta.uid, 64)
    all_labels = {f"label:{key}": value for key, value in list(labels.items())[:MAX_LABELS]}
    all_labels |= {"pod.uid": uid} | ({"owner": owner} if owner else {})
    statuses = [
        *(status.container_statuses or ()),
        *(status.init_container_statuses or ()),
        *(status.ephemeral_container_statuses or ()),
    ]
    return Pod(
        uid=uid,
        name=clean(meta.name, MAX_NAME),
        namespace=clean(meta.namespace, MAX_NAME),
        labels=_sorted(all_labels),
        job=job_of(labels, owner),
        containers=tuple(_container(each) for each in statuses[:MAX_CONTAINERS]),
        evicted=_evicted(status),
        cgroup_uid=_static_uid(meta),
    )


def _sorted(found: dict[str, str]) -> Labels:
    return tuple(sorted(found.items()))


def _owner(meta: _Meta, labels: dict[str, str]) -> str | None:
    """As in Job/nightly. A ReplicaSet is made by a Deployment: its name has the hash of the template."""
    owners = meta.owner_references or []
    first = next((each for each in owners if each.controller), owners[0] if owners else None)
    if first is None or not first.kind:
        return None
    kind, name = clean(first.kind, 64), clean(first.name, MAX_NAME)
    suffix = f"-{labels.get('pod-template-hash', '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        return f"Deployment/{name.removesuffix(suffix)}"
    return f"{kind}/{name}"


def job_of(labels: dict[str, str], owner: str | None) -> str | None:
    """The job's name, by an operator's label or the owner that is one."""
    named = next((labels[key] for key in JOB_LABELS if labels.get(key)), None)
    kind, _, name = (owner or "").partition("/")
    return named or (name if kind.endswith("Job") and name else None)


def _static_uid(meta: _Meta) -> str | None:
    raw = (meta.annotations or {}).get("kubernetes.io/config.hash")
    found = re.fullmatch(rb'"([0-9a-f]{32})"', bytes(raw)) if raw is not None else None
    return found[1].decode() if found else None


def _evicted(status: _PodStatus) -> str | None:
    if status.phase != "Failed" or status.reason not in ("Evicted", "Preempting", "Terminated"):
        return None
    return clean(status.message or status.reason, 200)


def _container(told: _Status) -> PodContainer:
    _, _, number = (told.container_id or "").partition("://")
    # After the last restart a container may have ended for good: then the state says it, not the last one.
    ended = next(
        (each.terminated for each in (told.state, told.last_state) if each and each.terminated), None
    )
    return PodContainer(
        clean(told.name, MAX_NAME),
        number if re.fullmatch(r"[0-9a-zA-Z_.-]{1,128}", number) else None,
        max(0, min(told.restart_count, MOST_RESTARTS)),
        _ended(ended) if ended else None,
    )


def _ended(told: _Terminated) -> Ended:
    code = told.exit_code
    return Ended(
        _instant(told.finished_at),
        clean(told.reason, 64) if told.reason else None,
        code if code is not None and abs(code) < MOST_RESTARTS else None,
    )


def _instant(text: str | None) -> int | None:
    try:
        found = datetime.fromisoformat(text or "")
        at_ns = int(found.timestamp()) * 1_000_000_000
    except (ValueError, OverflowError):
        return None
    return at_ns if found.tzinfo and 0 < at_ns < LAST_NS else None
