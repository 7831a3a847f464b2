"""Who may tell a collector something, and who may look: nodes for themselves, people with their token."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.assistants.certificates import Authority
from tests.fleet.serving import Collector, body, collector, nodes
from tests.fleet.test_store import fresh
from tests.servers import TOKEN


@pytest.fixture(scope="module")
def with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    home = tmp_path_factory.mktemp("tokens")
    home.chmod(0o700)
    with collector(home) as running:
        yield running


def test_a_node_with_its_token_is_heard_and_another_name_is_not_believed(with_tokens: Collector) -> None:
    token = with_tokens.token_of("n1")
    assert with_tokens.post(body(fresh("n1")), token)[0] == 200
    assert with_tokens.post(body(fresh("n2")), token)[0] == 403
    assert (
        with_tokens.post(body(fresh("n1", 2)) + body(fresh("n2")), token)[0] == 403
    )  # not even beside its own
    assert {each["node"] for each in nodes(with_tokens)} == {"n1"}


def test_a_stranger_is_not_heard(with_tokens: Collector) -> None:
    assert with_tokens.post(body(fresh("n9")))[0] == 401
    assert with_tokens.post(body(fresh("n9")), "ingero-node:n9:00")[0] == 401
    assert with_tokens.post(body(fresh("n9")), TOKEN)[0] == 401  # people do not speak for nodes


def test_nodes_may_not_look(with_tokens: Collector) -> None:
    for path in ("/api/v1/fleet", "/api/v1/fleet/node?node=n1", "/metrics", "/"):
        assert with_tokens.get(path, with_tokens.token_of("n1"))[0] == 401
        assert with_tokens.get(path, "")[0] == 401
    assert with_tokens.get("/metrics")[0] == 200


def test_a_gateway_speaks_for_those_it_was_named_for(with_tokens: Collector) -> None:
    token = with_tokens.token_of("rack7-*")
    assert with_tokens.post(body(fresh("rack7-a")) + body(fresh("rack7-b")), token)[0] == 200
    assert with_tokens.post(body(fresh("rack8-a")), token)[0] == 403


def test_a_cluster_can_be_part_of_the_name_and_is_not_made_up_without_end(with_tokens: Collector) -> None:
    bound = with_tokens.token_of("c1/n7")
    assert with_tokens.post(body(fresh("n7")), bound)[0] == 200
    assert with_tokens.post(body(fresh("n7", cluster="c2")), bound)[0] == 403
    token = with_tokens.token_of("n8")
    said = [with_tokens.post(body(fresh("n8", cluster=f"c{at}")), token)[0] for at in range(6)]
    assert said == [200] * 4 + [403] * 2


def test_what_cannot_be_read_is_refused_and_the_collector_lives(with_tokens: Collector) -> None:
    token = with_tokens.token_of("n1")
    assert with_tokens.post(b"\xff\xff", token)[0] == 400
    assert with_tokens.post(b"{}", token, kind="application/json")[0] == 200  # nothing in it
    assert with_tokens.post(b"x", token, kind="text/plain")[0] == 415
    assert with_tokens.post(b"\0" * (17 << 20), token)[0] == 400
    assert with_tokens.alive()


@pytest.mark.parametrize(
    "asked", ["/node?node=n1&hours=nan", "/node?node=n1&hours=-1", "/node", "?limit=-1", "?limit=x"]
)
def test_a_question_that_makes_no_sense_is_refused_with_the_reason(
    with_tokens: Collector, asked: str
) -> None:
    status, said = with_tokens.get(f"/api/v1/fleet{asked}")
    assert (status, b"Expected" in said or b"missing" in said) == (400, True)


def test_with_certificates_a_node_is_whom_its_certificate_names(home: Path, tmp_path: Path) -> None:
    ours, others = Authority(tmp_path), Authority(tmp_path, "others")
    with collector(home, "--client-ca", str(ours.file), "--gateway", "otel") as running:
        assert running.post(body(fresh("n1")), client=ours.sign("n1"))[0] == 200
        assert running.post(body(fresh("n2")), client=ours.sign("n1"))[0] == 403  # lies about its name
        assert running.post(body(fresh("n2")), client=ours.sign("otel"))[0] == 200
        bound = ours.sign("n3", ("ingero://c1/n3",))
        assert running.post(body(fresh("n3", cluster="elsewhere")), client=bound)[0] == 403
        assert running.post(body(fresh("n3")), client=bound)[0] == 200
        assert running.post(body(fresh("n1")))[0] == 401  # an intruder without one
        with pytest.raises((ssl.SSLError, OSError)):  # and one with a certificate of somebody else's
            running.post(body(fresh("n1")), client=others.sign("n1"))
        assert {each["node"] for each in nodes(running)} == {"n1", "n2", "n3"}
        assert running.get("/api/v1/fleet", "")[0] == 401  # a certificate of a node opens no page


def test_on_one_machine_no_token_is_needed(home: Path) -> None:
    with collector(home, listen="127.0.0.1:0", INGERO_TOKEN="") as running:
        assert running.post(body(fresh("anything")))[0] == 200
        assert running.get("/api/v1/fleet", "")[0] == 200
        assert next(line for line in running.more if "any node" in line)
