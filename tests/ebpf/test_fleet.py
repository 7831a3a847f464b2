"""`ingero trace --fleet` on five nodes of a network that fails: real agents, a real collector, namespaces.

One loses packets, one is cut off for a while, one speaks in another's name, and a stranger speaks, too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.across.stage import JOB
from ingero.scenarios import cuda
from tests import namespaces
from tests.assistants.certificates import Authority
from tests.conftest import require
from tests.fleet.serving import collector, stored
from tests.namespaces import Machine, Network
from tests.servers import TOKEN, environment

NODES = tuple(f"gpu-node-0{number}" for number in range(1, 6))
LOSSY, CUT_OFF, LIAR = 1, 3, 4
STEPS = 40
PORT = 8443
INGERO = (sys.executable, "-m", "ingero")
LIMIT_S = 120


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    missing = [] if importlib.util.find_spec("chdb") else ["no chdb: pip install 'ingero[fleet]'"]
    require("ebpf", [*namespaces.missing(), *missing])
    with namespaces.network(*NODES, "collector", "stranger") as made:
        yield made


class Site:
    """Who runs where, with which certificate."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network = folder, network
        self.authority = Authority(folder)
        self.collector = network.machines[len(NODES)]
        self.url = f"https://{self.collector.address}:{PORT}"

    def environ(self, at: int) -> dict[str, str]:
        """Of a node; whoever is none has no certificate."""
        home = self.folder / f"home-{at}"
        home.mkdir(mode=0o700, exist_ok=True)
        found = {
            "INGERO_RUN_DIR": str(home),
            "INGERO_COLLECTOR_SPOOL": str(home / "spool"),
            "INGERO_COLLECTOR_CA_CERT": str(self.authority.file),
            "INGERO_STUB_DEVICE": str(self.folder / "device"),
            "INGERO_STUB_DEVICES": str(len(NODES)),
            "LD_LIBRARY_PATH": str(cuda.stub_dir()),
            "PYTHONPATH": str(JOB.parents[2]),
        }
        if at < len(NODES):
            signed = str(self.authority.sign(NODES[at]))
            found |= {"INGERO_COLLECTOR_CLIENT_CERT": signed, "INGERO_COLLECTOR_CLIENT_KEY": signed}
        return environment(home, **found)

    def db(self, at: int) -> Path:
        return self.folder / f"{NODES[at]}.db"

    def agent(self, at: int) -> subprocess.Popen[bytes]:
        name = NODES[0] if at == LIAR else NODES[at]
        job = [sys.executable, str(JOB), str(self.folder), "--here", str(at), "--ranks", str(len(NODES))]
        words = ["trace", "--no-tui", "--node", name, "-d", str(self.db(at)), "--fleet", self.url]
        return self._started(self.network.machines[at], at, *words, "--", *job, "--steps", str(STEPS))

    def _started(self, machine: Machine, at: int, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"said-{at}.txt").open("wb") as log:
            command = [*machine.inside, *INGERO, *words]
            return subprocess.Popen(command, env=self.environ(at), stdout=log, stderr=log)

    def push(self, machine: Machine, at: int, db: Path) -> subprocess.Popen[bytes]:
        return self._started(machine, at, "fleet", "push", "--once", "-d", str(db), "--fleet", self.url)

    def nodes(self) -> dict[str, dict[str, Any]]:
        words = [*INGERO, "fleet", "status", "--json", "--collector", self.url]
        more = {"INGERO_TOKEN": TOKEN, "INGERO_COLLECTOR_CA_CERT": str(self.authority.file)}
        said = namespaces.run_inside(self.collector, [*words, "--ca", str(self.authority.file)], **more)
        assert said.returncode == 0, said.stderr
        return {each["node"]: each for each in json.loads(said.stdout)["nodes"]}

    def said(self, at: int) -> str:
        return (self.folder / f"said-{at}.txt").read_text()


@pytest.mark.long
def test_real_agents_tell_a_collector_over_a_bad_network(network: Network, tmp_path: Path) -> None:
    site = Site(tmp_path, network)
    home = tmp_path / "collector"
    home.mkdir(mode=0o700)
    signed = str(site.authority.sign("collector", (site.collector.address,)))
    words = ("--client-ca", str(site.authority.file), "--cert", signed, "--key", signed)
    network.machines[LOSSY].lose(8)
    network.machines[CUT_OFF].cut_off()
    with collector(home, *words, listen=f":{PORT}", inside=site.collector.inside):
        agents = [site.agent(at) for at in range(len(NODES))]
        codes = [agent.wait(LIMIT_S) for agent in agents]
        assert codes == [0] * len(NODES), "\n".join(map(site.said, range(len(NODES))))
        heard = site.nodes()
        assert sorted(heard) == [NODES[at] for at in (0, 1, 2)]
        assert "they wait in" in site.said(CUT_OFF)
        assert "refused" in site.said(LIAR) or "speak for itself" in site.said(LIAR)
        network.machines[CUT_OFF].mend()
        pushed = site.push(network.machines[CUT_OFF], CUT_OFF, site.db(CUT_OFF))
        stranger = site.push(network.machines[-1], len(NODES), site.db(0))
        assert (pushed.wait(LIMIT_S), stranger.wait(LIMIT_S)) == (0, 1), site.said(CUT_OFF)
        assert sorted(site.nodes()) == [NODES[at] for at in (0, 1, 2, 3)]
    found = stored(home)
    runs = {node: {run for name, run, _ in found if name == node} for node in NODES}
    # The one that was cut off: its trace, whose rounds waited on disk, and what was pushed after it.
    assert [len(runs[node]) for node in NODES] == [1, 1, 1, 2, 0]
    assert set(found.values()) == {1}
    assert not any(os.scandir(tmp_path / f"home-{CUT_OFF}" / "spool" / f"{site.collector.address}_{PORT}"))
