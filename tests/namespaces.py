"""Machines of a network on this machine: network namespaces on one bridge, each with addresses of its own.

Only the network is theirs; files, processes and clocks are this machine's. Packets are lost, and machines cut
off, by rules of nft in their namespace. Needs root, `ip` and `nft`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

TOOLS = ("ip", "nft", "nsenter")
_NETWORKS = itertools.count(1)
_RULES = """
flush ruleset
table inet faults {
    chain incoming { type filter hook input priority 0; iifname != "lo" %s drop; }
    chain outgoing { type filter hook output priority 0; oifname != "lo" %s drop; }
}
"""


def missing() -> list[str]:
    """What it takes and is not there."""
    found = [f"no {tool}" for tool in TOOLS if shutil.which(tool) is None]
    return found if os.geteuid() == 0 else ["not root", *found]


def _do(*words: str, told: str | None = None) -> None:
    subprocess.run(words, check=True, input=told, text=True, capture_output=True)


@dataclass(frozen=True)
class Machine:
    """One of them."""

    name: str
    namespace: str
    address: str
    address6: str

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command that is to run there. `ip netns exec` would hide /sys, too."""
        return "nsenter", f"--net=/run/netns/{self.namespace}"

    def cut_off(self) -> None:
        """Nothing gets in or out."""
        self._rule("")

    def lose(self, percent: int) -> None:
        """So many of a hundred packets, each way, at random."""
        self._rule(f"numgen random mod 100 < {percent}")

    def mend(self) -> None:
        _do(*self.inside, "nft", "flush", "ruleset")

    def _rule(self, which: str) -> None:
        _do(*self.inside, "nft", "-f", "-", told=_RULES % (which, which))


@dataclass
class Network:
    """A bridge, and who is on it."""

    prefix: str
    machines: list[Machine] = field(default_factory=list)

    def add(self, name: str) -> Machine:
        number = len(self.machines) + 1
        made = Machine(name, f"{self.prefix}-{number}", f"10.77.0.{number}", f"fd77::{number}")
        self.machines.append(made)
        _do("ip", "netns", "add", made.namespace)
        port = ("ip", "-n", self.switch, "link")
        _do(*port, "add", f"p{number}", "type", "veth", "peer", "name", "eth0", "netns", made.namespace)
        _do(*port, "set", f"p{number}", "master", "bridge", "up")
        there = ("ip", "-n", made.namespace)
        _do(*there, "link", "set", "lo", "up")
        _do(*there, "address", "add", f"{made.address}/24", "dev", "eth0")
        _do(*there, "-6", "address", "add", f"{made.address6}/64", "dev", "eth0", "nodad")
        _do(*there, "link", "set", "eth0", "up")
        return made

    @property
    def switch(self) -> str:
        return f"{self.prefix}-0"


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """With these machines; all of it is gone afterwards."""
    made = Network(f"ingero-{os.getpid()}-{next(_NETWORKS)}")
    try:
        _do("ip", "netns", "add", made.switch)
        _do("ip", "-n", made.switch, "link", "add", "bridge", "type", "bridge")
        _do("ip", "-n", made.switch, "link", "set", "bridge", "up")
        for name in names:
            made.add(name)
        yield made
    finally:
        for namespace in (*(each.namespace for each in made.machines), made.switch):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


def run_inside(machine: Machine, words: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    """A command there, with these in its environment."""
    return subprocess.run(
        [*machine.inside, *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **more},
        timeout=120,
    )
