"""Short traces beside the long one, one after the other: each must leave nothing behind."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks import jobs as traces
from benchmarks.soak.facts import Facts, left_in_kernel
from benchmarks.soak.sample import KernelObjects, children, kernel_objects

EVERY_S, LASTS_S, LOOK_S = 180.0, 40, 30.0


class ShortTraces:
    """`tend` them often; all write into one database, a recording each."""

    def __init__(self, folder: Path, cgroup: Path) -> None:
        self._folder = folder
        self._words = ("--cgroup", str(cgroup), "--duration", f"{LASTS_S}s")
        self._running: traces.Trace | None = None
        self._held: KernelObjects | None = None
        self._began_s = time.monotonic() - EVERY_S + LOOK_S
        self._recordings = 0

    def tend(self, facts: Facts) -> None:
        now = time.monotonic()
        if self._running is None:
            if now >= self._began_s + EVERY_S:
                self._began_s, self._held = now, None
                self._running = traces.Trace(self._folder, *self._words)
        elif self._running.process.poll() is not None:
            self._check(self._running, facts)
            self._running = None
        elif self._held is None and now >= self._began_s + LOOK_S:
            self._held = kernel_objects([self._running.pid, *children(self._running.pid)])

    def _check(self, ended: traces.Trace, facts: Facts) -> None:
        facts.short_traces += 1
        self._recordings += 1
        if ended.process.returncode:
            facts.problems.append(
                f"short trace {facts.short_traces} ended with {ended.process.returncode}: {ended.said[-300:]}"
            )
        if self._held:
            facts.problems += [
                f"short trace {facts.short_traces} left {each}" for each in left_in_kernel(self._held)
            ]
        (whole,) = ended.sql("SELECT COUNT(*) FROM recording WHERE ended_ns IS NOT NULL")[0]
        if whole != self._recordings:
            facts.problems.append(f"{self._recordings} short traces ended, {whole} recordings have an end")

    def end(self, facts: Facts) -> None:
        """Wait for the one that runs."""
        if self._running is not None:
            self._running.process.wait(LASTS_S + 60)
            self._check(self._running, facts)
            self._running = None

    def kill(self) -> None:
        if self._running is not None:
            self._running.process.kill()
            self._running.process.wait()
