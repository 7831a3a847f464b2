"""Nodes with addresses of their own on a network that fails: five real dashboards in network namespaces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import namespaces
from tests.conftest import require
from tests.fleet_nodes import Authority, dashboard, record
from tests.namespaces import Machine, Network

MS = 1_000_000
PORT = 8443
NODES = tuple(f"gpu-node-0{number}" for number in range(1, 6))
AHEAD_NS = (0, 80 * MS, -60 * MS, 0, 0)  # of each node's clock
LOSSY, CUT_OFF, LIAR = 2, 3, 4
PATIENCE = "10s"  # a packet that is lost twice is sent again after three seconds
SQL = "SELECT node, min(timestamp_ns) AS timestamp_ns, count(*) AS n FROM calls GROUP BY 1"


@dataclass(frozen=True)
class Site:
    """The nodes, and two who ask."""

    network: Network
    authority: Authority
    home: Path

    def machine(self, name: str) -> Machine:
        return next(each for each in self.network.machines if each.name == name)

    def ask(self, who: str, *words: str, client: Path | None = None) -> tuple[int, dict[str, Any]]:
        """The command line on one of the machines."""
        shown = ("--client-cert", str(client), "--client-key", str(client)) if client else ()
        said = namespaces.run_inside(
            self.machine(who),
            [sys.executable, "-m", "ingero", *words, *shown, "--json"],
            HOME=str(self.home),
            INGERO_FLEET_CA_CERT=str(self.authority.file),
        )
        return said.returncode, json.loads(said.stdout) if said.stdout else {"err": said.stderr}


def where(site: Site) -> str:
    """Two are asked by IPv6."""
    nodes = [site.machine(name) for name in NODES]
    hosts = [each.address if at % 2 else f"[{each.address6}]" for at, each in enumerate(nodes)]
    return ",".join(f"{host}:{PORT}" for host in hosts)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    require("namespaces", namespaces.missing())
    folder = tmp_path_factory.mktemp("site")
    authority = Authority(folder)
    with ExitStack() as stack:
        network = stack.enter_context(namespaces.network(*NODES, "desk", "intruder"))
        for at, (name, ahead_ns) in enumerate(zip(NODES, AHEAD_NS, strict=True)):
            machine = network.machines[at]
            another = network.machines[0] if at == LIAR else machine
            signed = str(authority.sign(name, (another.address, another.address6)))
            stack.enter_context(
                dashboard(
                    record(folder / f"{name}.db", name),
                    folder / f"home-{at}",
                    *("--addr", f":{PORT}", "--cert", signed, "--key", signed),
                    *("--client-ca", str(authority.file)),
                    ahead_ns=ahead_ns,
                    token=None,
                    inside=machine.inside,
                )
            )
        network.machines[LOSSY].lose(8)
        network.machines[CUT_OFF].cut_off()
        yield Site(network, authority, folder)


def test_who_is_cut_off_or_lies_is_named_and_the_others_are_heard_by_one_clock(site: Site) -> None:
    code, answer = site.ask(
        "desk", "query", "--nodes", where(site), "--node-timeout", PATIENCE, "--strict", SQL,
        client=site.authority.sign("desk"),
    )  # fmt: skip
    assert code == 4
    asked = answer["fleet"]["nodes"]
    assert [each.get("problem") for each in asked] == [None, None, None, "slow", "certificate"]
    rows = {row["node"]: row for row in answer["rows"]}
    assert sorted(rows) == [NODES[0], NODES[1], NODES[2]]
    assert {row["n"] for row in rows.values()} == {9}
    recorded_ns = {row["timestamp_ns"] for row in _local(site)}
    assert len(recorded_ns) == 1  # all by the same clock; what is served is ahead or behind
    for at in range(CUT_OFF):
        clock = asked[at]["clock"]
        assert abs(clock["offset_ns"] - AHEAD_NS[at]) <= clock["error_ns"]
        moved_ns = rows[NODES[at]]["timestamp_ns"] - next(iter(recorded_ns))
        assert abs(moved_ns + AHEAD_NS[at]) <= clock["error_ns"]


def _local(site: Site) -> list[dict[str, Any]]:
    found = [site.ask("desk", "query", "-d", str(site.home / f"{name}.db"), SQL) for name in NODES[:CUT_OFF]]
    return [row for _, answer in found for row in answer["rows"]]


def test_an_intruder_without_a_certificate_hears_nothing(site: Site) -> None:
    code, answer = site.ask(
        "intruder", "query", "--nodes", where(site).rsplit(",", 3)[0], "--node-timeout", PATIENCE, SQL
    )
    assert (code, answer.get("rows", [])) == (1, [])
    assert "client-cert" in str(answer)
