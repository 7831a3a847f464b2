"""A dashboard that shows other machines: the configured ones, and nobody else."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fanout.conftest import Cluster
from tests.fleet_nodes import record
from tests.servers import TOKEN, Running, started


@pytest.fixture(scope="module")
def front(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a dashboard that has the cluster behind it, and a node that is down."""
    home = tmp_path_factory.mktemp("front")
    db = record(home / "front.db", "front")
    signed = str(cluster.authority.sign("front"))
    words = ["dashboard", "-d", str(db), "--addr", "127.0.0.1:0", "--cert", signed, "--key", signed]
    environ = {
        "INGERO_TOKEN": TOKEN,
        "INGERO_FLEET_NODES": f"{cluster.listed},127.0.0.1:1",
        "INGERO_FLEET_CA_CERT": str(cluster.authority.file),
    }
    with started(Running, words, home, environ) as running:
        yield running.port


def ask(port: int, authority: Path, path: str, body: Any = None) -> tuple[int, Any]:
    tls = ssl.create_default_context(cafile=authority)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=tls)
    try:
        sent = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {TOKEN}"}
        connection.request("POST" if sent else "GET", f"/api/v1/{path}", sent, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_the_machines_are_listed_with_who_does_not_answer(front: int, cluster: Cluster) -> None:
    status, found = ask(front, cluster.authority.file, "fleet")
    assert status == 200
    assert [each["nodes"] for each in found["nodes"]] == [
        ["gpu-node-01"],
        ["gpu-node-02"],
        ["gpu-node-03"],
        [],
    ]
    assert found["nodes"][3]["problem"] == "down"


def test_every_question_can_be_asked_of_another_machine(front: int, cluster: Cluster) -> None:
    authority, there = cluster.authority.file, f"fleet={cluster.nodes[1]}"
    assert ask(front, authority, f"recordings?{there}")[1]["nodes"] == ["gpu-node-02"]
    assert ask(front, authority, "recordings")[1]["nodes"] == ["front"]
    sql = {"sql": "SELECT node, count(*) AS n FROM calls GROUP BY 1", "exact": True}
    assert ask(front, authority, f"query?{there}", sql)[1]["rows"] == [{"node": "gpu-node-02", "n": 3}]
    status, said = ask(front, authority, f"explain?{there}&pid=77777")
    assert status == 400
    assert "77777" in said["error"]
    assert ask(front, authority, f"explain?{there}&nonsense=1")[0] == 400


@pytest.mark.parametrize("address", ["127.0.0.1:22", "localhost:8080", "", "169.254.169.254:80"])
def test_nobody_else_is_asked(front: int, cluster: Cluster, address: str) -> None:
    status, said = ask(front, cluster.authority.file, f"health?fleet={address}")
    assert status == 404
    assert "not one of the configured nodes" in said["error"]


def test_a_machine_that_does_not_answer_is_an_error_with_the_reason(front: int, cluster: Cluster) -> None:
    status, said = ask(front, cluster.authority.file, "explain?fleet=127.0.0.1:1")
    assert (status, said["error"]) == (503, "127.0.0.1:1: nobody listens there")
    assert ask(front, cluster.authority.file, f"fleet?fleet={cluster.nodes[0]}")[0] == 400
