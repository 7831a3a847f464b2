"""Diagnoses of many nodes side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.serving import record as play
from tests.browser.serving import rename_node
from tests.fanout.conftest import MS, Ask
from tests.fleet_nodes import Authority, dashboard, record

AHEAD_NS = -3600 * 1000 * MS


@pytest.fixture(scope="module")
def two_nodes(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A node in trouble whose clock is an hour behind, and another."""
    folder = tmp_path_factory.mktemp("sick")
    signed = str(authority.sign("both"))
    words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed)
    sick = play("cpu-contention", folder / "sick.db")
    rename_node(sick, "sick")
    with (
        dashboard(sick, folder / "a", *words, ahead_ns=AHEAD_NS) as first,
        dashboard(record(folder / "well.db", "well"), folder / "b", *words) as second,
    ):
        yield first, second


def test_findings_of_all_nodes_say_whose_they_are_and_are_by_our_clock(
    two_nodes: tuple[str, str], ask: Ask
) -> None:
    nodes = ",".join(two_nodes)
    one = ask("explain", "--json", "--nodes", two_nodes[0]).json
    said = ask("explain", "--json", "--exit-code", "--nodes", nodes)
    assert said.code == 3
    both = said.json
    found = {each["id"]: each for each in both["findings"]}
    assert {each.partition(":")[0] for each in found} == {"sick", "well"}
    assert {each["node"] for each in both["processes"]} == {"sick", "well"}
    assert both["fleet"]["answered"] == 2
    clock = both["fleet"]["nodes"][0]["clock"]
    assert abs(clock["shift_ns"] + AHEAD_NS) <= clock["error_ns"]
    # Two measurements of one clock differ by their errors at most.
    assert abs(found[one["findings"][0]["id"]]["first_ns"] - one["findings"][0]["first_ns"]) < 100 * MS


def test_the_text_names_the_node_and_who_did_not_answer(two_nodes: tuple[str, str], ask: Ask) -> None:
    said = ask("explain", "--strict", "--nodes", f"{','.join(two_nodes)},127.0.0.1:1")
    assert said.code == 4
    assert "sick" in said.out
    assert "no answer from 127.0.0.1:1 (down)" in said.err
    assert "the clock of sick is" in said.err


def test_a_process_that_no_node_has_is_told_once(two_nodes: tuple[str, str], ask: Ask) -> None:
    said = ask("explain", "--pid", "77777", "--nodes", ",".join(two_nodes))
    assert said.code == 2
    assert said.err.count("77777") == 1
