"""What tracing takes beside the hits of probes: cores from the jobs, and time from everybody's switches.

The governor keeps what hits cost a traced thread within its budget. This is the rest of the bill,
shown and not governed: what the agent itself computes, what of it was a core that a job waited for, and
what the scheduler's programs cost threads that nobody traces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from ingero.model.layout import Bucket
from ingero.model.window import Window

NAME = b"ingero itself"


def machine_switches() -> int | None:
    """Context switches of all cores since boot."""
    found = re.search(r"^ctxt (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    return int(found[1]) if found else None


class OwnCost:
    """One trace's."""

    def __init__(
        self,
        ns_per_switch: float | None,
        cores: int,
        switches: Callable[[], int | None] = machine_switches,
        agent_pid: int | None = None,
        readers: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        self._readers = readers
        self._ns_per_switch, self._cores, self._switches = ns_per_switch, cores, switches
        self._agent_pid = agent_pid or os.getpid()
        self._before = switches()
        # Nanoseconds of the last window, and of all: taken, of feeding threads, of others, of all cores.
        self._last, self._all = np.zeros(4), np.zeros(4)

    def claim(self, window: Window) -> None:
        """What processes of ours did is ours, and nobody's evidence."""
        ours = list(self._readers())
        for rows, name in ((window.culprits, "pid"), (window.wakers, "waker_pid")):
            rows[name][np.isin(rows[name], ours)] = self._agent_pid
        window.io = window.io[~np.isin(window.io["pid"], ours)]

    def fill(self, window: Window) -> None:
        """Name ourselves among the culprits, and say what the switches of others cost."""
        mine = window.culprits["pid"] == self._agent_pid
        window.culprits["comm"][mine] = NAME
        now, before = self._switches(), self._before
        self._before = now
        if now is not None and before is not None:
            threads = window.threads
            traced = int((threads["voluntary_switches"] + threads["involuntary_switches"]).sum())
            window.switches = max(now - before - traced, 0)
            if self._ns_per_switch is not None:
                window.switches_ns = round(window.switches * self._ns_per_switch)
        self._last = np.array(
            [
                _taken_ns(window, self._agent_pid),
                window.threads["ns"][window.threads["feeder"]].sum(),
                window.switches_ns or 0,
                (window.end_ns - window.start_ns) * self._cores,
            ],
            np.float64,
        )
        self._all += self._last

    def shares(self, whole: bool) -> tuple[float | None, float | None]:
        """Of the feeding threads' time, and of all cores: taken from the jobs, and from bystanders."""
        taken, fed, others, cores = (self._all if whole else self._last).tolist()
        known = self._ns_per_switch is not None and cores
        return taken / fed if fed else None, others / cores if known else None


def _taken_ns(window: Window, agent_pid: int) -> int:
    """A core that a feeding thread waited for and we had."""
    feeding = set(window.threads["tid"][window.threads["feeder"]].tolist())
    rows = window.culprits
    chosen = (rows["pid"] == agent_pid) & (rows["bucket"] == int(Bucket.RUNQUEUE)) & (rows["throttled"] == 0)
    return int(rows["ns"][chosen & np.isin(rows["victim_tid"], list(feeding))].sum())
