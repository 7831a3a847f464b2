"""What the GPUs of several nodes cost together."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.fanout.conftest import Ask
from tests.fleet_nodes import Authority, dashboard
from tests.unit.serve.answers.test_cost import record, second

SECONDS = {"gpu-node-01": 10, "gpu-node-02": 6}


def test_hours_of_all_nodes_are_summed_up_and_who_is_missing_is_said(
    ask: Ask, authority: Authority, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        nodes = []
        for node, seconds in SECONDS.items():
            windows = (second(at, (0, 100, 0.5), busy={0: 0.5}) for at in range(seconds))
            db = record(tmp_path / f"{node}.db", *windows, node=node)
            signed = str(authority.sign(node))
            words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed)
            nodes.append(stack.enter_context(dashboard(db, tmp_path / f"home-{node}", *words)))
        listed = ",".join((*nodes, "127.0.0.1:1"))
        said = ask("cost", "--nodes", listed, "--price", "3.6", "--json", "--strict")
        assert said.code == 4
        assert said.json["total"]["held_ns"] == sum(SECONDS.values()) * 10**9
        assert [each.get("problem") for each in said.json["fleet"]["nodes"]] == [None, None, "down"]
        by_node = ask("cost", "--nodes", listed, "--by", "node", "--json")
        assert {each["name"]: each["held_ns"] // 10**9 for each in by_node.json["lines"]} == SECONDS
        shown = ask("cost", "--nodes", listed)
        assert (shown.code, "team-a" in shown.out, "127.0.0.1:1" in shown.err) == (0, True, True)
        assert ask("cost", "--strict").code == 2
