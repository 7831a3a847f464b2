"""Nodes that run the same command without collectives: the slower one is told once, with its own culprit."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.browser.serving import rename_node
from tests.fanout.conftest import Ask
from tests.fleet_nodes import Authority, dashboard
from tests.paced_jobs import PacedJob, Slower

SECONDS, PACE, FALL = 60, 20.0, 0.4
ODD = "gpu-node-2"


def recorded(path: Path, node: str, slower: Slower | None) -> Path:
    PacedJob(SECONDS, PACE, slower, noise=(0.0, 0.02, -0.02)).write(path)
    rename_node(path, node)
    return path


def explained(authority: Authority, ask: Ask, folder: Path, slower: Slower | None) -> list[dict[str, Any]]:
    signed = str(authority.sign("paced"))
    words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed)
    with ExitStack() as servers:
        nodes = []
        for node in ("gpu-node-1", ODD, "gpu-node-3"):
            db = recorded(folder / f"{node}.db", node, slower if node == ODD else None)
            nodes.append(servers.enter_context(dashboard(db, folder / f"home-{node}", *words)))
        said = ask("explain", "--json", "--strict", "--nodes", ",".join(nodes))
    assert said.code == 0, said.err
    found: list[dict[str, Any]] = said.json["findings"]
    return found


def test_the_slower_node_is_one_finding_with_what_has_its_cores(
    authority: Authority, ask: Ask, tmp_path: Path
) -> None:
    found = explained(authority, ask, tmp_path, Slower(0, SECONDS, FALL, "runqueue"))
    assert len(found) == 1, [each["title"] for each in found]
    (only,) = found
    assert str(only["id"]).startswith(f"{ODD}:")
    assert only["kind"] == "cpu-contention"
    assert f"on {ODD}" in str(only["title"])
    assert "2 peers on other nodes" in str(only["title"])
    assert only["causes"][0]["bucket"] == "runqueue"
    assert only["causes"][0]["who"][0]["comm"] == "hog"


def test_nodes_of_one_pace_are_told_nothing(authority: Authority, ask: Ask, tmp_path: Path) -> None:
    assert explained(authority, ask, tmp_path, None) == []
