"""Names for containers while tracing: told when they come, and never waited for."""

from __future__ import annotations

import msgspec
import pytest

from ingero.agent.tenants import NOT_ASKED, Tenants
from ingero.discover.kubelet import KubeletError, pods_of
from ingero.model.pods import KubeletAccess, NamedContainer, Pod
from ingero.model.window import Container, Window
from tests.a_kubelet import pod, restarted
from tests.builders import window

A = "a" * 64
THERE = Container(5, "/kubepods/pod-x/a", A, "containerd", pod_uid="u-1")
ACCESS = KubeletAccess("https://127.0.0.1:1")
BEGAN_NS = 1_700_000_000_000_000_000


class Node:
    """A kubelet whose answer changes; `look` is what the thread does, without one."""

    def __init__(self) -> None:
        self.items: list[object] = [pod()]
        self.trouble = ""
        self.names: dict[str, NamedContainer] = {}
        self.tenants = Tenants(ACCESS, since_ns=BEGAN_NS, ask_pods=self._pods, ask_names=self._names)

    def _pods(self, _: KubeletAccess) -> list[Pod]:
        if self.trouble:
            raise KubeletError(self.trouble)
        return pods_of(msgspec.json.encode({"items": self.items}))

    def _names(self, wanted: set[str]) -> dict[str, NamedContainer]:
        return {each: self.names[each] for each in wanted if each in self.names}

    def window(self, *containers: Container) -> Window:
        made = window(0, containers=list(containers))
        self.tenants.fill(made, {})
        return made


def test_names_that_come_later_are_told_again_and_only_once() -> None:
    node = Node()
    (first,) = node.window(THERE).containers
    assert first.pod is None
    node.tenants.look()
    (named,) = node.window().containers
    assert (named.pod, named.namespace, named.job, named.container_id) == (
        "trainer-0",
        "team-a",
        "nightly",
        A,
    )
    assert dict(named.labels)["name"] == "trainer"
    node.tenants.look()
    assert node.window().containers == []


def test_a_container_the_status_does_not_list_yet_is_found_by_its_pods_uid() -> None:
    node = Node()
    node.tenants.look()
    (named,) = node.window(Container(6, "/kubepods/pod-x/b", "b" * 64, pod_uid="u-1")).containers
    assert (named.pod, dict(named.labels).get("name")) == ("trainer-0", None)


def test_another_pods_container_gets_no_name_of_ours() -> None:
    node = Node()
    node.tenants.look()
    (other,) = node.window(Container(7, "/x", "c" * 64, pod_uid="u-9")).containers
    assert other.pod is None


def test_a_kubelet_that_is_away_costs_the_names_and_is_said_to_be() -> None:
    node = Node()
    node.trouble = "the kubelet does not answer"
    node.tenants.look()
    made = node.window(THERE)
    assert made.containers == [THERE]
    assert [(each.what, each.why) for each in made.not_watched] == [("pods", "the kubelet does not answer")]
    node.trouble = ""
    node.tenants.look()
    assert [each.pod for each in node.window().containers] == ["trainer-0"]


def test_a_pod_is_told_once_and_each_restart_when_it_is_counted() -> None:
    node = Node()
    node.items = [pod(**restarted(4, at="2020-01-01T00:00:00Z"))]  # long before the trace
    node.tenants.look()
    assert [each.event for each in node.window().pod_events] == ["seen"]
    node.items = [pod(**restarted(5, "OOMKilled", at="2023-11-14T22:14:00Z"))]
    node.tenants.look()
    (event,) = node.window().pod_events
    assert (event.event, event.reason, event.exit_code, event.restarts) == ("oom-kill", "OOMKilled", 137, 5)
    assert event.at_ns == 1_700_000_040_000_000_000
    node.tenants.look()
    assert node.window().pod_events == []


def test_a_restart_since_the_trace_began_counts_at_the_first_look() -> None:
    node = Node()
    node.items = [pod(**restarted(1, at="2023-11-14T22:14:00Z"))]
    node.tenants.look()
    assert [each.event for each in node.window().pod_events] == ["seen", "restart"]


def test_an_eviction_is_told_once() -> None:
    node = Node()
    gone = pod()
    gone["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    node.items = [gone]
    for _ in range(2):
        node.tenants.look()
    assert [(e.event, e.reason) for e in node.window().pod_events] == [
        ("seen", None),
        ("evicted", "low on memory"),
    ]


def test_runtimes_are_asked_about_containers_without_a_name_alone() -> None:
    node = Node()
    node.items = []
    node.names = {A: NamedContainer(A, "web", labels=(("label:team", "a"), ("name", "web")))}
    node.window(THERE)
    node.tenants.look()
    (named,) = node.window().containers
    assert dict(named.labels) == {"label:team": "a", "name": "web"}


def test_nobody_is_asked_who_is_not_configured() -> None:
    asked: list[object] = []
    tenants = Tenants(None, ask_pods=lambda access: asked.append(access) or [])  # type: ignore[func-returns-value]
    tenants.look()
    assert asked == []
    assert tenants.absent() == {"pods": NOT_ASKED}


def test_containers_that_come_and_go_for_months_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero.agent.tenants.MAX_CONTAINERS", 10)
    node = Node()
    for number in range(1, 100):
        node.window(Container(number, f"/{number}"))
    assert len(node.tenants._containers) == 10
