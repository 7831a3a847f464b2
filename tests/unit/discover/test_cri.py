"""Pods by the word of a real gRPC server that speaks the runtime interface: right, wrong and hostile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero.agent.tenants import Tenants
from ingero.discover import container_names, kubelet
from ingero.model.pods import NamedContainer
from ingero.model.window import Container
from tests.a_runtime import CREATED, POD, container, runtime, sandbox
from tests.builders import SECOND, window

pytest.importorskip("grpc")
A, B, C = "a" * 64, "b" * 64, "c" * 64


def test_pods_are_named_with_labels_job_and_restarts(tmp_path: Path) -> None:
    path = tmp_path / "s"
    labels = {"app": "bert", "batch.kubernetes.io/job-name": "nightly"}
    both = container(A, POD, attempt=2) + container(B, {"app": "no pod"}, of_pod=b"")
    with runtime(path, lambda: both, lambda: sandbox(labels)) as asked:
        found = container_names.pod_names([path])
    assert asked == [container_names.LIST_CONTAINERS, container_names.LIST_PODS]
    assert found.keys() == {A}
    one = found[A]
    assert (one.pod, one.namespace, one.name, one.job) == ("trainer-0", "team-a", "trainer", "nightly")
    assert (one.restarts, one.made_ns) == (2, CREATED)
    assert dict(one.labels) == {
        "name": "trainer", "pod.uid": "u-1", "label:app": "bert",
        "label:batch.kubernetes.io/job-name": "nightly",
    }  # fmt: skip


def test_each_container_gets_the_labels_of_its_own_pod() -> None:
    other = POD | {container_names.POD: "serve-1", container_names.UID: "u-2"}
    containers = container(A, POD) + container(B, other, of_pod=b"two") + container(C, POD, of_pod=b"gone")
    pods = sandbox({"app": "serve"}, "serve-1", uid="u-2", of=b"two") + sandbox({"app": "bert"})
    found = container_names.named_in(containers, pods)
    assert {each: dict(one.labels).get("label:app") for each, one in found.items()} == {
        A: "bert", B: "serve", C: None,
    }  # fmt: skip
    assert {each: (one.pod, dict(one.labels)["pod.uid"]) for each, one in found.items()} == {
        A: ("trainer-0", "u-1"), B: ("serve-1", "u-2"), C: ("trainer-0", "u-1"),
    }  # fmt: skip


def test_a_runtime_that_tells_no_pods_tells_names(tmp_path: Path) -> None:
    def breaks() -> bytes:
        raise OSError("not implemented")

    with runtime(tmp_path / "s", lambda: container(A, POD), breaks):
        assert container_names.pod_names([tmp_path / "s"])[A].pod == "trainer-0"


def test_a_restart_that_only_a_runtime_tells_is_an_event(tmp_path: Path) -> None:
    """The next attempt is another container: it has no name yet, and so the runtime is asked again."""
    path, told = tmp_path / "s", [container(A, POD, attempt=1)]

    def asked(wanted: set[str]) -> dict[str, NamedContainer]:
        return container_names.names(wanted, (), tmp_path, (), (path,))

    tenants = Tenants(None, since_ns=CREATED + 30 * SECOND, ask_names=asked)
    events = []
    with runtime(path, lambda: b"".join(told), lambda: sandbox({"app": "bert"})):
        for cgroup_id, name in ((5, A), (6, B)):
            tenants.fill(window(0, containers=[Container(cgroup_id, f"/kubepods/{name}", name)]), {})
            tenants.look()
            seen = window(1)
            tenants.fill(seen, {})
            events += seen.pod_events
            assert [(each.pod, dict(each.labels)["label:app"]) for each in seen.containers] == [
                ("trainer-0", "bert")
            ]
            told.append(container(B, POD, attempt=2, created=CREATED + 60 * SECOND))
    assert [(each.event, each.pod, each.restarts) for each in events] == [
        ("seen", "trainer-0", 1),
        ("restart", "trainer-0", 2),
    ]
    assert (events[1].container, events[1].at_ns) == ("trainer", CREATED + 60 * SECOND)
    assert (events[1].reason, events[1].exit_code) == (None, None)


@pytest.mark.parametrize(("created", "made"), [(0, None), (2**64 - 1, None), (CREATED, CREATED)])
def test_numbers_that_no_recording_can_hold_are_bounded(created: int, made: int | None) -> None:
    (one,) = container_names.named_in(container(A, POD, attempt=2**64 - 1, created=created)).values()
    assert one.made_ns == made
    assert one.restarts == kubelet.MOST_RESTARTS


def test_it_is_asked_only_about_containers_that_nobody_else_names(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with runtime(path, lambda: container(A, POD)) as asked:
        nobody = {"sockets": (), "docker_state": tmp_path, "podman_lists": (), "cri_sockets": (path,)}
        assert container_names.names(set(), **nobody) == {}
        assert asked == []
        assert container_names.names({A, B}, **nobody).keys() == {A}
        assert len(asked) == 2


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
    labels = {f"k{n}\x1b[31m": "v\n" * 900 for n in range(500)}
    (found,) = container_names.named_in(
        container(A, POD), sandbox(labels, name="\x1b[2J" + "x" * 900)
    ).values()
    assert found.pod is not None
    texts = [found.pod, *(text for pair in found.labels for text in pair)]
    assert not [each for each in texts if any(ord(letter) < 32 for letter in each)]
    assert max(map(len, texts)) <= container_names.MAX_POD_TEXT
    assert 2 < len(found.labels) <= container_names.MAX_LABELS + 2


@given(st.binary(max_size=200), st.integers(0, 300))
def test_whatever_is_answered_is_names_or_none(noise: bytes, cut: int) -> None:
    whole, pods = container(A, POD), sandbox({"app": "bert"})
    for answer in (noise, whole[:cut], whole[:cut] + noise):
        assert isinstance(container_names.named_in(answer, pods), dict)
    for answer in (noise, pods[:cut], pods[:cut] + noise):
        assert container_names.named_in(whole, answer).keys() == {A}
