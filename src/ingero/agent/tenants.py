"""Names for containers: asked of the kubelet and the runtimes in a thread nobody waits for.

A window's containers get the names that are known by then; when an answer brings more, the
containers it is about are told again. A kubelet that is slow, wrong or away costs the names
and nothing else, and is said to be so once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from ingero.discover import container_names, kubelet
from ingero.discover.kubelet import KubeletError
from ingero.model.pods import Ended, NamedContainer, Pod, PodContainer
from ingero.model.pods import KubeletAccess as Access
from ingero.model.window import Container, Labels, PodEvent, Unwatchable, Window
from ingero.units import clean

EVERY_S = 10.0
SOON_S = 1.0  # after a container nobody has a name for came, and between two questions
MAX_CONTAINERS = 1024
MAX_PODS = 4096
NOT_ASKED = "no kubelet is configured (kubernetes.kubelet)"
SOURCE = "pods"


class Tenants:
    """What containers are called, from those who run them."""

    def __init__(
        self,
        access: Access | None = None,
        every_s: float = EVERY_S,
        since_ns: int | None = None,
        ask_pods: Callable[[Access], list[Pod]] = kubelet.ask,
        ask_names: Callable[[set[str]], dict[str, NamedContainer]] = container_names.names,
    ) -> None:
        self._access, self._every_s = access, every_s
        self._since_ns = time.time_ns() if since_ns is None else since_ns
        self._ask_pods, self._ask_names = ask_pods, ask_names
        self._stop, self._wake, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._containers: dict[int, Container] = {}  # as they were told last
        self._names: dict[str, NamedContainer] = {}  # by container id, or by a pod's uid in cgroup paths
        self._wanted: set[str] = set()  # containers outside pods that no runtime was asked about
        self._fresh = False
        self._events: list[PodEvent] = []
        self._restarts: dict[tuple[str, str], int] = {}
        self._told: set[tuple[str, str]] = set()  # pods seen, pods evicted
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._work, name="tenants", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """A thread that waits for an answer is left behind."""
        self._stop.set()
        self._wake.set()

    def absent(self) -> dict[str, str]:
        return {} if self._access else {SOURCE: NOT_ASKED}

    # --- the agent's side -------------------------------------------------------------

    def fill(self, window: Window, warnings: dict[str, str]) -> None:
        """Names for this window's containers, and for earlier ones that have one now. Never waits."""
        with self._lock:
            again = list(self._containers.values()) if self._fresh else []
            self._fresh = False
            window.containers = self._named(window.containers, again)
            window.pod_events, self._events = self._events, []
            trouble, self._trouble = self._trouble, None
        if trouble:
            window.not_watched.append(Unwatchable(0, SOURCE, trouble))
            warnings[SOURCE] = f"names of pods: {trouble}"

    def _named(self, new: list[Container], again: list[Container]) -> list[Container]:
        told: dict[int, Container] = {}
        for each in (*again, *new):
            full = self._with_names(each)
            if self._containers.get(each.cgroup_id) != full or each in new:
                told[each.cgroup_id] = full
            self._containers.pop(each.cgroup_id, None)
            self._containers[each.cgroup_id] = full
            if full.container_id and not full.labels:
                self._wanted.add(full.container_id)
                self._wake.set()
        while len(self._containers) > MAX_CONTAINERS:
            self._containers.pop(next(iter(self._containers)))
        return list(told.values())

    def _with_names(self, container: Container) -> Container:
        found = self._names.get(container.container_id or "") or self._names.get(container.pod_uid or "")
        if found is None:
            return container
        return replace(
            container,
            pod=found.pod or container.pod,
            namespace=found.namespace or container.namespace,
            job=container.job or found.job,
            labels=merged(container.labels, found.labels),
        )

    # --- in the thread --------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._wake.wait(self._every_s)
            self._wake.clear()
            self._stop.wait(SOON_S)

    def look(self) -> None:
        """Ask everybody once."""
        with self._lock:
            wanted, self._wanted = self._wanted, set()
        try:
            pods = self._ask_pods(self._access) if self._access else []
            trouble = None
        except KubeletError as error:
            pods, trouble = [], str(error)
        except Exception as error:  # the names are not worth the trace
            pods, trouble = [], clean(f"{type(error).__name__}: {error}", 120)
        found = self._ask_names(wanted) if wanted else {}
        found |= {key: named for pod in pods for key, named in names_of(pod).items()}
        with self._lock:
            self._trouble = trouble or self._trouble
            self._fresh |= any(self._names.get(key) != named for key, named in found.items())
            self._names |= found
            while len(self._names) > 2 * MAX_CONTAINERS:
                self._names.pop(next(iter(self._names)))
            for pod in pods or pods_of_containers(found.values()):
                self._events.extend(self._news(pod))

    def _news(self, pod: Pod) -> list[PodEvent]:
        """What happened to it since the trace began; at the first look, that it is there."""
        now_ns, events = time.time_ns(), []
        about = (pod.name, pod.namespace, pod.uid)
        if len(self._told) > MAX_PODS or len(self._restarts) > MAX_PODS:
            self._told.clear()
            self._restarts.clear()
        if (pod.uid, "seen") not in self._told:
            self._told.add((pod.uid, "seen"))
            most = max((each.restarts for each in pod.containers), default=0)
            events.append(PodEvent(now_ns, *about, "", "seen", restarts=most))
        if pod.evicted and (pod.uid, "evicted") not in self._told:
            self._told.add((pod.uid, "evicted"))
            events.append(PodEvent(now_ns, *about, "", "evicted", pod.evicted))
        for each in pod.containers:
            ended = each.ended
            at_ns = ended.at_ns if ended and ended.at_ns else None
            # Before the first look, only what the kubelet says happened while we were here.
            lately = at_ns is not None and at_ns >= self._since_ns - 1_000_000_000
            before = self._restarts.get((pod.uid, each.name), each.restarts - 1 if lately else each.restarts)
            self._restarts[pod.uid, each.name] = each.restarts
            if each.restarts > max(before, 0):
                reason, code = (ended.reason, ended.exit_code) if ended else (None, None)
                what = "oom-kill" if reason == "OOMKilled" else "restart"
                events.append(PodEvent(at_ns or now_ns, *about, each.name, what, reason, code, each.restarts))
        return events


def names_of(pod: Pod) -> dict[str, NamedContainer]:
    """By container id, and by the uid that is in the cgroup path of each of its containers."""
    found = {
        uid: NamedContainer(uid, None, pod.name, pod.namespace, pod.job, pod.labels)
        for uid in (pod.uid, pod.cgroup_uid)
        if uid
    }
    for each in pod.containers:
        if each.container_id:
            labels = merged(pod.labels, (("name", each.name),))
            found[each.container_id] = NamedContainer(
                each.container_id, each.name, pod.name, pod.namespace, pod.job, labels
            )
    return found


def pods_of_containers(named: Iterable[NamedContainer]) -> list[Pod]:
    """What a runtime tells of pods where no kubelet does: restarts and when, but no reason."""
    found: dict[str, tuple[NamedContainer, dict[str, PodContainer]]] = {}
    for each in named:
        uid = dict(each.labels).get("pod.uid")
        if not uid or not each.name or each.restarts is None:
            continue
        _, containers = found.setdefault(uid, (each, {}))
        before = containers.get(each.name)
        if before is None or before.restarts < each.restarts:
            when = Ended(each.made_ns) if each.restarts else None
            containers[each.name] = PodContainer(each.name, each.container_id, each.restarts, when)
    return [
        Pod(uid, one.pod or "", one.namespace or "", containers=tuple(containers.values()))
        for uid, (one, containers) in found.items()
    ]


def merged(one: Labels, more: Labels) -> Labels:
    """The second one counts."""
    return tuple(sorted((dict(one) | dict(more)).items()))
