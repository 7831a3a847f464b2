"""A node speaks for itself; a gateway for those it was named for; nobody else is heard."""

from __future__ import annotations

import pytest

from ingero.errors import UsageError
from ingero.fleet.collector.credentials import (
    CLUSTERS,
    GATEWAYS_CLUSTERS,
    Clusters,
    Credentials,
    Speaker,
    Stranger,
    token_for,
)

SECRET = b"a-secret-of-the-tests-0123456789"


def bearer(name: str, secret: bytes = SECRET) -> str:
    return f"Bearer {token_for(secret, name)}"


def test_a_token_is_for_one_node() -> None:
    speaker = Credentials(SECRET, False).speaker(bearer("gpu-1"), ())
    assert speaker.may_speak_for("gpu-1")
    assert not speaker.may_speak_for("gpu-2")
    assert not speaker.may_speak_for("gpu-11")


def test_a_token_for_a_pattern_is_for_names_that_begin_so() -> None:
    speaker = Credentials(SECRET, False).speaker(bearer("rack7-*"), ())
    assert speaker.may_speak_for("rack7-gpu-1")
    assert not speaker.may_speak_for("rack8-gpu-1")
    assert Credentials(SECRET, False).speaker(bearer("*"), ()).may_speak_for("anything")


@pytest.mark.parametrize(
    "shown",
    [
        "", "Bearer", "Bearer x", bearer("gpu-1", b"another secret 0123456789"),
        bearer("gpu-1").replace("gpu-1", "gpu-2"), bearer("gpu-1").replace("gpu-1", "*"),
        bearer("gpu-1").replace("Bearer", "Basic"), bearer("gpu-1")[:-1], "Bearer ingero-node:gpu-1:",
        "Bearer ingero-node:gpu-1:é",
    ],
)  # fmt: skip
def test_what_is_no_token_of_ours_is_refused(shown: str) -> None:
    with pytest.raises(Stranger):
        Credentials(SECRET, False).speaker(shown, ())


def test_a_token_may_be_for_one_cluster_only() -> None:
    speaker = Credentials(SECRET, False).speaker(bearer("west/gpu-*"), ())
    assert speaker.may_speak_for("gpu-1", "west")
    assert not speaker.may_speak_for("gpu-1", "east")
    assert not speaker.may_speak_for("gpu-1", "")
    assert not speaker.may_speak_for("cpu-1", "west")
    with pytest.raises(Stranger):
        Credentials(SECRET, False).speaker(bearer("west/gpu-1").replace("west", "east"), ())


def test_a_certificate_may_be_for_one_cluster_only() -> None:
    speaker = Credentials(None, True).speaker("", ("gpu-1", "ingero://west/gpu-1", "https://elsewhere"))
    assert speaker.may_speak_for("gpu-1", "west")
    assert not speaker.may_speak_for("gpu-1", "east")  # its plain name does not widen what binds it
    assert Credentials(None, True).speaker("", ("gpu-1",)).may_speak_for("gpu-1", "anywhere")


def test_nobody_names_any_number_of_clusters() -> None:
    node, gateway, clusters = Speaker(frozenset({"gpu-1"})), Speaker(frozenset({"rack-*"})), Clusters()
    assert all(clusters.admit(node, {f"c{at}"}) for at in range(CLUSTERS))
    assert not clusters.admit(node, {"one-more"})
    assert clusters.admit(node, {"c0"})  # those it has named stay its own
    assert clusters.admit(gateway, {f"c{at}" for at in range(GATEWAYS_CLUSTERS)})
    assert not clusters.admit(gateway, {"one-more"})


def test_a_certificate_names_its_node() -> None:
    credentials = Credentials(None, True, ["otel-gateway"])
    assert credentials.speaker("", ("gpu-1",)).may_speak_for("gpu-1")
    assert not credentials.speaker("", ("gpu-1",)).may_speak_for("gpu-2")
    assert credentials.speaker("", ("otel-gateway",)).may_speak_for("gpu-2")
    assert not credentials.speaker("", ("*",)).may_speak_for("gpu-2")  # no pattern: a strange name
    with pytest.raises(Stranger):
        credentials.speaker("", ())
    with pytest.raises(Stranger):  # no secret, no tokens
        credentials.speaker(bearer("gpu-1"), ())


def test_a_wrong_token_is_not_made_good_by_a_certificate() -> None:
    with pytest.raises(Stranger):
        Credentials(SECRET, True).speaker("Bearer x", ("gpu-1",))


@pytest.mark.parametrize("name", ["", "a b", "a:b", "*x", "a*b", "\n", "/a", "a/", "a/b/c", "*/a"])
def test_a_token_is_made_for_names_only(name: str) -> None:
    with pytest.raises(UsageError):
        token_for(SECRET, name)
