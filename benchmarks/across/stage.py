"""Several nodes on one machine: an agent for each with its own name, address, clock and part of the job.

Each node is a network namespace, in which its agent runs and afterwards the server that is asked. All agents
share one kernel, so each traces only the command it starts. What happened is told by the ranks themselves, by
the one clock they share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from ingero.scenarios import cuda
from tests.assistants.certificates import Authority
from tests.namespaces import Machine, Network, network, run_inside
from tests.servers import TOKEN, Running, started

NODES, HERE = 4, 2
STEPS = 150
LIMIT_S = 240  # machines may be busy
PORT = 8443
DESK = "desk"  # where somebody asks
SHIPPER = Path(__file__).with_name("shipper.py")
JOB = Path(__file__).with_name("job.py")
ROOT = Path(__file__).parents[2]
# Where its time goes on the late rank's own node.
BUCKETS = {"cores": "runqueue", "computes": "host_cpu", "sleeps": "sleep", "disk": "disk_wait"}


@dataclass(frozen=True)
class Played:
    """One run: what is to be found."""

    seed: int
    fault: str  # empty: nothing is wrong
    rank: int
    from_step: int
    ms: float
    ahead_ms: tuple[float, ...]  # of each node's clock
    drift_ppm: tuple[float, ...]

    @property
    def node(self) -> str:
        return name_of(self.rank // HERE)

    @property
    def text(self) -> str:
        clocks = ", ".join(f"{each:+.0f}" for each in self.ahead_ms)
        what = f"{self.fault} on rank {self.rank} from step {self.from_step}" if self.fault else "healthy"
        return f"seed {self.seed}: {what}; clocks {clocks} ms"


def name_of(number: int) -> str:
    return f"gpu-node-{number + 1:02d}"


def drawn(seed: int, fault: str | None = None) -> Played:
    random = Random(seed)
    chosen = random.choice(sorted(BUCKETS)) if fault is None else fault
    return Played(
        seed,
        chosen,
        random.randrange(NODES * HERE),
        random.choice((0, STEPS // 3, STEPS // 2)),
        random.uniform(20, 50),
        (0.0, *(random.uniform(-80, 80) for _ in range(NODES - 1))),
        (0.0, *(random.uniform(-50, 50) for _ in range(NODES - 1))),
    )


@dataclass
class Stage:
    """Plays a run in a folder of its own."""

    folder: Path
    play: Played
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """The diagnosis of all nodes together, asked over the network."""
        with network(*(name_of(number) for number in range(NODES)), DESK) as made:
            self._play(made)
            return self._asked(made)

    def _play(self, nodes: Network) -> None:
        hog = None
        try:
            self.agents = [self._agent(number, nodes.machines[number]) for number in range(NODES)]
            hog = self._hog()
            codes = [agent.wait(LIMIT_S) for agent in self.agents]
        finally:
            for process in [*self.agents, *([hog] if hog else [])]:
                process.kill()
                process.wait()
        if any(codes):
            raise RuntimeError(f"agents ended with {codes}: {self._said()}")

    def _asked(self, nodes: Network) -> dict[str, Any]:
        authority = Authority(self.folder)
        addresses = ",".join(f"{each.address}:{PORT}" for each in nodes.machines[:NODES])
        with ExitStack() as servers:
            for number in range(NODES):
                servers.enter_context(self._server(number, nodes.machines[number], authority))
            environ = self._environment(self.folder) | {
                "INGERO_TOKEN": TOKEN,
                "INGERO_FLEET_CA_CERT": str(authority.file),
            }
            words = [sys.executable, "-m", "ingero", "explain", "--nodes", addresses, "--strict", "--json"]
            said = run_inside(nodes.machines[NODES], words, **environ)
        if said.returncode:
            raise RuntimeError(f"explain --nodes ended with {said.returncode}: {said.stderr}")
        found: dict[str, Any] = json.loads(said.stdout)
        return found

    @contextmanager
    def _server(self, number: int, machine: Machine, authority: Authority) -> Iterator[Running]:
        """What answers for a node, by its clock."""
        signed = str(authority.sign(machine.name, (machine.address,)))
        words = ["dashboard", "-d", str(self._db(number)), "--addr", f":{PORT}"]
        words += ["--cert", signed, "--key", signed]
        ahead_ns, drift = int(self.play.ahead_ms[number] * 1e6), self.play.drift_ppm[number]
        before = f"from benchmarks.across.shifted import shift; shift({ahead_ns}, {drift})"
        environ = {"INGERO_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
        home = self.folder / f"home-{number}"
        with started(Running, words, home, environ, before, inside=machine.inside) as running:
            yield running

    def of_merged(self) -> dict[str, Any]:
        """The same of their recordings, merged."""
        self._ingero("merge", *(str(self._db(number)) for number in range(NODES)), "-o", str(self.merged))
        found: dict[str, Any] = json.loads(self._ingero("explain", "-d", str(self.merged), "--json"))
        return found

    @property
    def merged(self) -> Path:
        return self.folder / "cluster.db"

    def _db(self, number: int) -> Path:
        return self.folder / f"{name_of(number)}.db"

    def _said(self) -> str:
        return " | ".join(
            (self.folder / f"{name_of(number)}.log").read_text()[-300:] for number in range(NODES)
        )

    def _agent(self, number: int, machine: Machine) -> subprocess.Popen[bytes]:
        play, home = self.play, self.folder / f"home-{number}"
        home.mkdir(mode=0o700)
        ahead_ns, here = int(play.ahead_ms[number] * 1e6), range(number * HERE, (number + 1) * HERE)
        job = [sys.executable, str(JOB), str(self.folder), "--here", ",".join(map(str, here))]
        job += ["--ranks", str(NODES * HERE), "--steps", str(STEPS)]
        job += ["--fault", play.fault, "--rank", str(play.rank if play.fault else -1)]
        job += ["--from-step", str(play.from_step), "--ms", str(play.ms), "--core", str(max(cores()))]
        command = [
            *machine.inside, sys.executable,
            "-m", "benchmarks.across.shifted", str(ahead_ns), str(play.drift_ppm[number]),
            "trace", "--no-tui", "--node", name_of(number), "-d", str(self._db(number)), "--", *job,
        ]  # fmt: skip
        log = (self.folder / f"{name_of(number)}.log").open("wb")
        with log:
            return subprocess.Popen(
                command, env=self._environment(home), stdout=log, stderr=log, preexec_fn=self._off_core
            )

    def _environment(self, home: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("INGERO_")}
        return kept | {
            "INGERO_RUN_DIR": str(home),
            "HOME": str(home),
            "INGERO_STUB_DEVICE": str(self.folder / "device"),
            "INGERO_STUB_DEVICES": str(NODES * HERE),
            "LD_LIBRARY_PATH": str(cuda.stub_dir()),
            "PYTHONPATH": str(ROOT),
        }

    def _off_core(self) -> None:
        """The last core is for the faulty rank, and for who takes it from it."""
        if self.play.fault:
            os.sched_setaffinity(0, set(cores()) - {max(cores())} or set(cores()))

    def _hog(self) -> subprocess.Popen[bytes] | None:
        """Who takes the core away, from the moment on at which it is to."""
        if self.play.fault != "cores":
            return None
        deadline = time.monotonic() + LIMIT_S
        while not (self.folder / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
            if any(agent.poll() for agent in self.agents):
                return None
        shipper = self.folder / "log-shipper"
        shipper.write_text(f"#!{sys.executable}\n{SHIPPER.read_text()}")
        shipper.chmod(0o700)
        return subprocess.Popen([str(shipper), str(max(cores())), str(self.play.ms / 4)])

    def _ingero(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ingero", *words], env=self._environment(self.folder), check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout

    def waited_share(self) -> float:
        """Of its time the rank that waited most for a core did so: on a busy machine no job is healthy."""
        return max(float(each["waited_share"]) for each in self._truth())

    def _truth(self) -> list[dict[str, Any]]:
        return [json.loads((self.folder / f"truth-{rank}.json").read_text()) for rank in range(NODES * HERE)]

    def late_ms(self) -> float:
        """By how much the faulty rank really came after the middle of the other nodes' ranks."""
        came = [each["came_ns"] for each in self._truth()]
        others = [rank for rank in range(NODES * HERE) if rank // HERE != self.play.rank // HERE]
        late = [
            came[self.play.rank][step] - median(came[rank][step] for rank in others)
            for step in range(self.play.from_step + 1, STEPS)
        ]
        return float(median(late)) / 1e6


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))
