"""Pods of this node as the kubelet tells of them, and containers as their runtime names them."""

from __future__ import annotations

from dataclasses import dataclass

from ingero.model.window import Labels


@dataclass(frozen=True, slots=True)
class KubeletAccess:
    """Where the kubelet is, and what to show it."""

    url: str  # https://10.0.0.7:10250, or http://127.0.0.1:10255, its read-only port
    token_file: str | None = None
    ca_file: str | None = None
    verify: bool = True
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class NamedContainer:
    """One container, by its id, with the names people know it by."""

    container_id: str
    name: str | None = None
    pod: str | None = None
    namespace: str | None = None
    job: str | None = None
    labels: Labels = ()
    restarts: int | None = None  # of a pod's container, where its runtime tells
    made_ns: int | None = None  # Unix epoch; the last restart was then


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container of a pod ended last."""

    at_ns: int | None = None  # Unix epoch
    reason: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class PodContainer:
    """One container of a pod: the id changes with every restart."""

    name: str
    container_id: str | None
    restarts: int
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    uid: str
    name: str
    namespace: str
    labels: Labels = ()  # as Container.labels has them: owner, pod.uid, label:KEY
    job: str | None = None  # the name of the Job, or of the training job, that made it
    containers: tuple[PodContainer, ...] = ()
    evicted: str | None = None  # why
    cgroup_uid: str | None = None  # static pods have another one in their cgroup path
