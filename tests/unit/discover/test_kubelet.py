"""The kubelet over real TLS: right, slow, wrong, hostile and away."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero.agent.tenants import names_of
from ingero.discover import kubelet
from ingero.discover.kubelet import KubeletError, ask, pods_of
from ingero.model.pods import KubeletAccess as Access
from tests.a_kubelet import (
    EACH_KIND,
    HASH,
    Kubelet,
    answer,
    bare,
    evicted,
    mirrored,
    out_of_memory,
    pod,
    refused,
    restarted,
    running,
    starting,
    static,
    with_helpers,
)
from tests.assistants.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def node(authority: Authority) -> Iterator[Kubelet]:
    with running(authority.sign("node")) as started:
        yield started


def access(node: Kubelet, authority: Authority, **more: object) -> Access:
    return Access(node.url, **{"ca_file": str(authority.file), **more})  # type: ignore[arg-type]


def test_pods_are_told_with_owner_labels_and_containers(node: Kubelet, authority: Authority) -> None:
    node.says(pod(**restarted(2)))
    (found,) = ask(access(node, authority))
    assert (found.name, found.namespace, found.uid, found.job) == ("trainer-0", "team-a", "u-1", "nightly")
    told = dict(found.labels)
    assert (told["owner"], told["label:app"], told["pod.uid"]) == ("Job/nightly", "bert", "u-1")
    (container,) = found.containers
    assert (container.name, container.container_id, container.restarts) == ("trainer", "a" * 64, 2)
    assert container.ended is not None
    assert (container.ended.reason, container.ended.exit_code) == ("Error", 137)
    assert node.asked == [("/pods", None)]


def test_the_token_is_shown_over_tls_and_never_in_the_clear(
    node: Kubelet, authority: Authority, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    node.token = "secret"
    assert ask(access(node, authority, token_file=str(token))) == []
    with running() as plain:
        assert ask(Access(plain.url, token_file=str(token))) == []
        assert plain.asked == [("/pods", None)]


def test_a_kubelet_that_refuses_is_told_with_what_it_wants(node: Kubelet, authority: Authority) -> None:
    node.token = "other"
    with pytest.raises(KubeletError, match="401: it wants a token"):
        ask(access(node, authority))
    node.token, node.status = None, 403
    with pytest.raises(KubeletError, match="nodes/proxy"):
        ask(access(node, authority))


def test_a_certificate_nobody_vouches_for_is_refused_unless_that_was_asked_for(
    node: Kubelet, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(KubeletError, match="not trusted"):
        ask(Access(node.url, ca_file=str(other.file)))
    assert ask(Access(node.url, verify=False)) == []


def test_an_answer_without_end_is_cut(
    node: Kubelet, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet, "MAX_ANSWER_BYTES", 1 << 20)
    node.endless = True
    with pytest.raises(KubeletError, match="larger than"):
        ask(access(node, authority))


def test_an_answer_that_takes_too_long_is_given_up(node: Kubelet, authority: Authority) -> None:
    node.endless = True
    times = iter(range(1000))
    with pytest.raises(KubeletError, match="too slowly"):
        ask(access(node, authority, timeout_s=5.0), now=lambda: float(next(times)))


def test_headers_that_never_end_are_given_up(node: Kubelet, authority: Authority) -> None:
    """Each byte comes in time."""
    node.dripping = True
    with pytest.raises(KubeletError, match="too slowly"):
        ask(access(node, authority, timeout_s=0.5))
    with running() as plain:
        plain.dripping = True
        with pytest.raises(KubeletError, match="too slowly"):
            ask(Access(plain.url, timeout_s=0.5))


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("https://fd00:10::1:10250", ("fd00:10::1", 10250, "/pods")),
        ("https://::1:10250/", ("::1", 10250, "/pods")),
        ("https://[fd00:10::1]:10250", ("fd00:10::1", 10250, "/pods")),
        ("[fd00::2]", ("fd00::2", 10250, "/pods")),
        ("https://10.0.0.1:10250/at", ("10.0.0.1", 10250, "/at/pods")),
        ("gpu-node-01", ("gpu-node-01", 10250, "/pods")),
    ],
)
def test_addresses_of_both_families_are_understood(url: str, reached: tuple[str, int, str]) -> None:
    connection, path, _ = kubelet._prepared(Access(url))
    assert (connection.host, connection.port, path) == reached


@pytest.mark.parametrize("said", [{}, {"kind": "Status", "status": "Failure"}, {"message": "no such page"}])
def test_who_answers_something_else_is_no_kubelet(said: dict[str, str]) -> None:
    """Its pods would be missing, and nobody would know why."""
    with pytest.raises(KubeletError, match="no list of pods"):
        pods_of(json.dumps(said).encode())


def test_a_node_without_pods_is_no_mistake() -> None:
    assert pods_of(b'{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": null}') == []


def test_nobody_there_is_one_line(tmp_path: Path) -> None:
    with running() as gone:
        pass
    with pytest.raises(KubeletError, match="does not answer"):
        ask(Access(gone.url))
    with pytest.raises(KubeletError, match="does not answer"):
        ask(Access("https://127.0.0.1:1", token_file=str(tmp_path / "none")))


def test_hostile_names_are_cleaned_and_cut_and_odd_pods_left_out(node: Kubelet, authority: Authority) -> None:
    bad = pod(name="\x1b]0;pwned\x07a\nb" + "x" * 9000, number="../../etc/passwd")
    bad["metadata"]["labels"] = {f"k{n}": "v" * 9000 for n in range(500)} | {"\x1b[31m": "red"}
    odd = pod()
    odd["metadata"]["uid"] = 7
    huge = pod(uid="u-3", restartCount=10**18)
    node.says(bad, odd, {"metadata": None}, "no pod", huge)
    first, last = ask(access(node, authority))
    assert len(first.name) <= kubelet.MAX_NAME
    assert first.containers[0].container_id is None
    texts = [first.name, *(text for pair in first.labels for text in pair)]
    assert not [each for each in texts if any(ord(letter) < 32 for letter in each)]
    assert len(first.labels) <= kubelet.MAX_LABELS + 2
    assert last.containers[0].restarts <= kubelet.MOST_RESTARTS


@pytest.mark.parametrize("version", [f"1.{minor}" for minor in range(28, 38)])
def test_the_kubelet_of_the_tests_answers_as_kubernetes_has_it(version: str) -> None:
    listed = json.loads(answer(*(made() for made in EACH_KIND)))
    assert kubernetes_validate.validate(listed, version, strict=True) == version
    listed["items"][0]["status"]["containerStatuses"][0]["containerId"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError, match="containerId"):
        kubernetes_validate.validate(listed, version, strict=True)


@pytest.mark.parametrize(
    ("made", "owner", "job", "restarts", "ended"),
    [
        (pod, "Job/nightly", "nightly", {"trainer": 0}, {}),
        (with_helpers, "Deployment/serve", None,
         {"trainer": 0, "fetch": 1, "proxy": 3, "debugger-q8": 0}, {"fetch": "Completed", "proxy": "Error"}),
        (static, None, None, {}, {}),
        (mirrored, "Node/node-a", None, {"trainer": 0}, {}),
        (out_of_memory, "Job/nightly", "nightly", {"trainer": 3}, {"trainer": "OOMKilled"}),
        (evicted, "Job/nightly", "nightly", {"trainer": 0}, {"trainer": "OOMKilled"}),
        (refused, "Job/nightly", "nightly", {}, {}),
        (starting, "Job/nightly", "nightly", {"trainer": 0}, {}),
        (bare, None, None, {}, {}),
    ],
)  # fmt: skip
def test_each_kind_of_pod_is_told_with_its_containers_and_their_restarts(
    made: Callable[[], dict[str, Any]], owner: str | None, job: str | None, restarts: dict[str, int],
    ended: dict[str, str], node: Kubelet, authority: Authority,
) -> None:  # fmt: skip
    """All of them in one answer: what one lacks is not taken from another."""
    node.says(*(each() for each in EACH_KIND))
    about = made()["metadata"]
    (found,) = (each for each in ask(access(node, authority)) if each.uid == about["uid"])
    assert (found.name, found.namespace, found.job) == (about["name"], about["namespace"], job)
    assert dict(found.labels).get("owner") == owner
    assert {each.name: each.restarts for each in found.containers} == restarts
    assert {each.name: each.ended.reason for each in found.containers if each.ended} == ended
    assert found.evicted == ("The node was low on resource: memory." if made is evicted else None)
    assert found.cgroup_uid == (HASH if made in (static, mirrored) else None)


def test_containers_of_every_kind_get_their_pods_name() -> None:
    (found,) = pods_of(answer(with_helpers()))
    named = names_of(found)
    numbers = {"trainer": "a", "fetch": "b", "proxy": "c", "debugger-q8": "d"}
    assert {name: named[letter * 64].name for name, letter in numbers.items()} == {
        name: name for name in numbers
    }
    assert {each.pod for each in named.values()} == {"serve-5d9f-x2x7k"}
    assert names_of(pods_of(answer(static()))[0]).keys() == {HASH}


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "yesterday", ""])
def test_a_time_that_no_recording_can_hold_is_not_known(at: str) -> None:
    (found,) = pods_of(answer(pod(**restarted(1, at=at))))
    assert found.containers[0].ended is not None
    assert found.containers[0].ended.at_ns is None


def test_a_deployment_is_named_instead_of_its_replica_set() -> None:
    made = pod()
    made["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "serve-5d9f", "controller": True}]
    made["metadata"]["labels"] = {"pod-template-hash": "5d9f"}
    import msgspec

    (found,) = pods_of(msgspec.json.encode({"items": [made]}))
    assert dict(found.labels)["owner"] == "Deployment/serve"
    assert found.job is None


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("https://fd00::7:10250", "https://[fd00::7]:10250"),
        ("https://2001:db8:0:0:0:0:0:1:10250/x", "https://[2001:db8:0:0:0:0:0:1]:10250/x"),
        ("https://[fd00::7]:10250", "https://[fd00::7]:10250"),
        ("https://10.0.0.7:10250", "https://10.0.0.7:10250"),
        ("http://node-a:10255", "http://node-a:10255"),
    ],
)
def test_an_address_of_ipv6_gets_its_brackets(said: str, meant: str) -> None:
    assert kubelet.bracketed(said) == meant


@given(st.binary(max_size=200))
def test_whatever_is_answered_is_a_list_of_pods_or_an_error(answer: bytes) -> None:
    with contextlib.suppress(KubeletError):
        assert isinstance(pods_of(answer), list)
