"""The API behind the pages: documented, checked, and the same numbers as the command line's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ingero.serve.dashboard.routes import ROUTES, Route
from tests.browser.serving import TOKEN, Running

GIVEN: dict[str, dict[str, Any]] = {
    "event": {"id": "demo:1"}, "query": {"sql": "SELECT 1 AS one"}, "timeline": {"width": 300},
}  # fmt: skip


def asked(server: Running, route: Route, **more: Any) -> Any:
    given = GIVEN.get(route.path, {}) | more
    if route.method == "POST":
        return server.ask(f"/api/v1/{route.path}", method="POST", body=given)
    return server.ask(f"/api/v1/{route.path}?" + "&".join(f"{name}={value}" for name, value in given.items()))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_answers_what_its_document_says(server: Running, route: Route) -> None:
    said = asked(server, route)
    assert said.status == 200
    msgspec.json.decode(said.body, type=route.answer)


def test_the_document_describes_every_route(server: Running) -> None:
    document = server.ask("/api/v1/openapi.json").value
    assert document["openapi"] == "3.1.0"
    paths = [*(each.path for each in ROUTES), "live", "recording"]
    assert set(document["paths"]) == {f"/api/v1/{path}" for path in paths}
    names = [each["name"] for each in document["paths"]["/api/v1/timeline"]["get"]["parameters"]]
    whose = ["container", "pod", "namespace", "job", "user"]
    assert names == ["since", "from", "to", "node", *whose, "pid", "width"]
    for found in references(document):
        assert found.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for each in value.values() for found in references(each)]
    return [found for each in value for found in references(each)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    "path",
    [
        "explain?since=never", "explain?pid=x", "explain?from=9&to=3", "explain?unknown=1",
        "timeline?width=0", "timeline?width=99999999", "flame?what=nothing", "event", "operations?limit=0",
        "explain?since=1m&since=2m", "event?id=x", "event?id=demo:", "event?id=:1", "event?id=demo:1x",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_reason(server: Running, path: str) -> None:
    said = server.ask(f"/api/v1/{path}")
    assert said.status == 400
    assert said.value["error"]


def test_what_is_not_there_is_not_found(server: Running) -> None:
    for path in ("event?id=demo:999999999", "event?id=nobody:1", "explain?node=nobody"):
        assert server.ask(f"/api/v1/{path}").status == 404
    assert server.ask("/api/v1/query", method="POST", body={"sql": "SELECT 1", "node": "x"}).status == 404
    assert server.ask("/api/v1/nothing").status == 404
    assert server.ask("/../../etc/passwd").status == 404


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"sql": 1}', b'{"sql": "x", "y": 1}', b"\xff" * 9, b"[" * 9999]
)
def test_a_broken_body_is_refused(server: Running, body: bytes) -> None:
    assert server.ask("/api/v1/query", method="POST", body=body).status == 400


def test_the_diagnosis_is_the_one_the_command_line_prints(server: Running, incident: Path) -> None:
    words = [sys.executable, "-m", "ingero", "explain", "--json", "-d", str(incident)]
    printed = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    assert server.ask("/api/v1/explain").value == printed


def test_one_node_of_several_is_asked_about(both: Running) -> None:
    nodes = both.ask("/api/v1/recordings").value["nodes"]
    assert len(nodes) == 2
    for route in ROUTES:
        if "node" in route.asked.__struct_fields__:
            assert asked(both, route, node=nodes[1]).status == 200, route.path
    tracks = both.ask(f"/api/v1/timeline?node={nodes[1]}").value["tracks"]
    assert {each["node"] for each in tracks} == {nodes[1]}


def test_every_failure_of_the_api_is_json(server: Running) -> None:
    for path, token, method in (
        ("/api/v1/nothing", TOKEN, "GET"), ("/api/v1/explain", TOKEN, "POST"),
        ("/api/v1/explain", None, "GET"), ("/api/v1/explain?nonsense=1", TOKEN, "GET"),
    ):  # fmt: skip
        answer = server.ask(path, token, method)
        assert answer.status >= 400
        assert answer.headers["content-type"] == "application/json"
        assert set(answer.value) == {"error", "hint"}
