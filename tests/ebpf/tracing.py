"""A real agent inside the test process, and workloads to point it at.

The agent runs in a thread: it hears the kernel every few milliseconds and reads a
window on demand. One agent serves a whole module, because attaching is part of what
is tested once and costs time under the perf shape.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ingero.agent.run import RunningTrace
from ingero.attach import probes
from ingero.model.live import QuietSurface
from ingero.model.options import TraceOptions
from ingero.model.window import Window

WORKLOADS = Path(__file__).parent.parent / "workloads"
# Attaching and detaching perf uprobes waits until the kernel has let go of those of the test before.
PATIENCE = (4 if os.environ.get("INGERO_ATTACH") == "perf" else 1) * int(
    os.environ.get("INGERO_PATIENCE", "1")
)
NAMES = {number: name for name, (number, _) in probes.BY_NAME.items()}


@dataclass
class Workload:
    """A program that prints `ready PID`, works after a line, says what it did, and waits."""

    process: subprocess.Popen[str]
    pid: int
    lines: list[str] = field(default_factory=list)

    def go(self) -> list[Any]:
        """Let it work; what it printed about it, parsed."""
        self.start()
        return self.wait_done()

    def start(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def wait_done(self) -> list[Any]:
        assert self.process.stdout is not None
        said: list[Any] = []
        for line in self.process.stdout:
            if line.startswith("done"):
                return said
            said.append(json.loads(line))
        raise AssertionError(f"workload ended early: {self.process.wait()}")

    def end(self) -> int:
        """Let it exit."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def workload(*command: str, before: tuple[str, ...] = (), **more: Any) -> Iterator[Workload]:
    """Start a program and wait until it is ready; whatever happens it is gone afterwards."""
    words = (
        [sys.executable, str(WORKLOADS / command[0]), *command[1:]] if command[0].endswith(".py") else command
    )
    words = [*before, *words]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready[:1] == ["ready"], f"not ready: {ready}"
        yield Workload(process, int(ready[1]))
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream and not stream.closed:
                stream.close()


class Tracer:
    """The agent, listening."""

    def __init__(self, options: TraceOptions, govern: bool = False) -> None:
        self._govern = govern
        self.agent = RunningTrace(options, QuietSurface())
        self.agent.start()
        self.windows: list[Window] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        try:
            while not self._stop.wait(0.003):
                with self._lock:
                    self.agent.hear()
                    if self._govern:
                        self.agent.govern()
        except BaseException as error:
            self._failed = error
            raise

    def tick(self) -> Window:
        """Read a window now."""
        assert self._failed is None
        with self._lock:
            window = self.agent.window()
        self.windows.append(window)
        return window

    def until(self, true: Any, timeout_s: float = 20) -> None:
        """Wait for something the agent must notice."""
        deadline = time.monotonic() + timeout_s * PATIENCE
        while not true():
            assert time.monotonic() < deadline, "the agent did not notice in time"
            assert self._failed is None
            time.sleep(0.005)

    def until_target(self, pid: int, driver: bool = True) -> None:
        """Wait until a process is traced and all its libraries carry probes."""

        def attached() -> bool:
            with self._lock:
                target = self.agent._targets.live.get(pid)
                session = self.agent._session
                assert session is not None
                if not (target and target.files and set(target.files) <= set(session.files)):
                    return False
                # The driver is mapped a moment after the runtime; then the runtime's hot probes go.
                return not driver or (
                    target.has_driver and not any(session.files[file].hot for file in target.files)
                )

        self.until(attached)

    def gather(self, name: str, *pids: int) -> np.ndarray[Any, Any]:
        """Records of one kind from all windows so far, of these processes."""
        parts = [getattr(window, name) for window in self.windows]
        rows = np.concatenate(parts)
        if not pids:
            return rows
        column = rows["h"]["pid"] if "h" in (rows.dtype.names or ()) else rows["pid"]
        return rows[np.isin(column, pids)]

    def calls(self, *pids: int) -> np.ndarray[Any, Any]:
        """Call records of these processes in order of their start."""
        self.tick()
        rows = self.gather("calls", *pids)
        return rows[np.argsort(rows["h"]["start_ns"], kind="stable")]

    def counts(self, *pids: int) -> dict[str, int]:
        """Calls counted by the histograms, by operation."""
        rows = self.gather("operations", *pids)
        found: dict[str, int] = {}
        for row in rows:
            name = NAMES[int(row["op"])]
            found[name] = found.get(name, 0) + int(row["count"])
        return found

    def waiting_calls(self, pid: int) -> dict[str, Any]:
        """Calls in flight now, by operation."""
        window = self.tick()
        return {
            NAMES[int(row["call_op"])]: row
            for row in window.in_flight
            if int(row["h"]["pid"]) == pid and row["call_op"]
        }

    def losses(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for window in self.windows:
            for reason, count in window.losses.items():
                total[reason] = total.get(reason, 0) + count
        return total

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.agent.close()


@contextmanager
def tracing(govern: bool = False, **options: Any) -> Iterator[Tracer]:
    """`govern`: hold the overhead budget, too; a test that counts calls wants all of them."""
    if not govern:  # while a reader works the agent governs by itself
        options.setdefault("max_overhead_share", None)
    tracer = Tracer(TraceOptions(record=False, **options), govern)
    try:
        yield tracer
    finally:
        tracer.close()
