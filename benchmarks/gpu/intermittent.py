"""The agent itself, with every probe taken off and put on again every half second.

    python -m benchmarks.gpu.intermittent PID DB SEGMENTS SECONDS BUDGET|off

Starting an agent takes longer than a noisy core keeps its speed. This is the same agent,
in the state it comes to by itself: while the probes are off it stands still, and its
governor learns nothing from that time. Writes to SEGMENTS when probes were on and off.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ingero.agent.run import RunningTrace
from ingero.model.live import QuietSurface
from ingero.model.options import TraceOptions

SETTLE_S = 5.0  # the governor finds its way, names are read
SEGMENT_S = 0.5
ENABLE, DISABLE = 0x2400, 0x2401  # ioctl of a perf event


class Remembering:
    """A loaded object whose attached programs can be attached again."""

    def __init__(self, loaded: Any, attached: list[tuple[Any, str, int]]) -> None:
        self._loaded, self._attached = loaded, attached

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded, name)

    def attach(self, program: str) -> int:
        link: int = self._loaded.attach(program)
        self._attached.append((self._loaded, program, link))
        return link


class Intermittent(RunningTrace):
    """Traces, and does not, in turns."""

    def __init__(self, options: TraceOptions, seconds: float) -> None:
        super().__init__(options, QuietSurface())
        self._seconds = seconds
        self._attached: list[tuple[Any, str, int]] = []
        load = self._kernel.load
        self._kernel.load = lambda *words, **more: Remembering(load(*words, **more), self._attached)  # type: ignore[method-assign, assignment]
        self.segments: list[tuple[str, int, int]] = []
        self.shares: list[float] = []  # by the agent's own account
        self.hits: list[float] = []  # per second
        self.actions: list[str] = []

    def _loop(self) -> int | None:
        self._started_ns = time.monotonic_ns()
        self._trace(SETTLE_S)
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            self._timed("on", lambda: self._trace(SEGMENT_S))
            self._off()
            self._timed("off", lambda: time.sleep(SEGMENT_S))
            self._on()
        return 0

    def _timed(self, name: str, work: Any) -> None:
        begin = time.monotonic_ns()
        work()
        self.segments.append((name, begin, time.monotonic_ns()))

    def _trace(self, seconds: float) -> None:
        assert self._governor is not None
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            self._news.poll(10)
            self.hear()
            self._governor.tick(time.monotonic_ns())
        window = self.window()
        traced_s = time.monotonic() - begin  # the window also has the time without probes
        if window.overhead_share is not None:
            self.shares.append(window.overhead_share * (window.end_ns - window.start_ns) / 1e9 / traced_s)
            self.hits.append(window.hits / traced_s)
        self.actions = list(self._governor.now())

    def _off(self) -> None:
        assert self._session is not None
        self._off_ns = time.monotonic_ns()
        self._session.take_off(everything=True)
        remembered = [link for *_, link in self._attached]
        for link in list(self._kernel._links):
            if link == self._kernel._tasks_link:
                continue
            if link in remembered:
                self._kernel._links.remove(link)
                os.close(link)
            else:
                fcntl.ioctl(link, DISABLE)

    def _on(self) -> None:
        assert self._session is not None
        assert self._governor is not None
        for link in self._kernel._links:
            if link != self._kernel._tasks_link:
                fcntl.ioctl(link, ENABLE)
        again = [
            (loaded, program, link if link == self._kernel._tasks_link else loaded.attach(program))
            for loaded, program, link in self._attached
        ]
        self._attached[:] = again
        self._kernel._links += [link for *_, link in again if link != self._kernel._tasks_link]
        self._session.put_on(self._targets.paths())
        if self._governor._on_ns is None:  # it had taken these off itself
            self._session.take_off()
        self._governor.stood_still(self._off_ns)


def main(pid: int, db: Path, segments: Path, seconds: float, budget: str) -> None:
    options = TraceOptions(pids=(pid,), db=db, max_overhead_share=None if budget == "off" else float(budget))
    agent = Intermittent(options, seconds)
    try:
        agent.run()
    finally:
        agent.close()
    found = {
        "segments": agent.segments,
        "shares": agent.shares,
        "hits": agent.hits,
        "actions": agent.actions,
        "ns_per_hit": agent._hit_cost.ns,
    }
    segments.write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
