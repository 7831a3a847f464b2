"""`ingero demo --no-gpu`: a made-up job through the real pipeline, shown and recorded.

Time is the story's own: its seconds pass as fast as `speed` says and end now, so that
`--since 5m` finds them. What is added up, stored, diagnosed and shown is the same code
as in a trace; only the probes are missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ingero.clock import Clock
from ingero.errors import IngeroError, StoreError
from ingero.model.finding import Finding
from ingero.model.live import DatabaseStatus, LiveTarget, LiveView, Overhead, Surface
from ingero.model.report import Bound
from ingero.scenarios import synthetic
from ingero.scenarios.job import timed
from ingero.scenarios.scenario import SECOND, Scenario
from ingero.serve.answers.live import LiveTotals
from ingero.serve.answers.metrics import Meter
from ingero.serve.answers.records import RecordStream
from ingero.store import location
from ingero.store.reader import Reader
from ingero.store.writer import Writer

NODE = "demo"
MADE_UP = "made up: "


class DemoDiagnosis(Protocol):
    """What the agent does while it records."""

    findings: tuple[Finding, ...]
    past: tuple[Finding, ...]
    bound: tuple[Bound, ...]
    steps: dict[int, str]
    looked_ns: int | None

    def consider(self, now_ns: int) -> None: ...

    def conclude(self) -> None: ...


@dataclass(frozen=True)
class Played:
    """What to play, where to keep it, and how long ago it ends."""

    scenario: Scenario
    db: Path
    seed: int
    speed: float  # the story's seconds in a second
    ago_ns: int = 0


class StoryTime:
    """The story's clock: stands still between windows."""

    def __init__(self, length_ns: int, ago_ns: int) -> None:
        before_ns = length_ns + ago_ns
        self.elapsed_ns = 0
        self._wall = time.time_ns() - before_ns
        self.mono_start_ns = time.monotonic_ns() - before_ns
        self.boot_start_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before_ns

    def clock(self) -> Clock:
        return Clock(
            lambda: self._wall + self.elapsed_ns,
            lambda: self.mono_start_ns + self.elapsed_ns,
            lambda: self.boot_start_ns + self.elapsed_ns,
        )


def length_ns(scenario: Scenario) -> int:
    return sum(phase.seconds for phase in scenario.story.phases) * SECOND


def run(played: Played, surface: Surface, diagnosing: Callable[[Writer], DemoDiagnosis]) -> int:
    """Play one scenario; the exit code."""
    scenario = played.scenario
    story = StoryTime(length_ns(scenario), played.ago_ns)
    clock = story.clock()
    totals = LiveTotals(synthetic.OPERATIONS, NODE, recent=surface.takes_the_screen)
    records = RecordStream(synthetic.OPERATIONS, clock, NODE)
    limits = surface.metric_limits
    meter = Meter(synthetic.OPERATIONS, clock, NODE, limits, surface.metric_prices) if limits else None
    if meter:
        surface.metrics(meter.snapshot)
    command = f"ingero demo {scenario.name}"
    with Writer(
        played.db, NODE, clock, synthetic.OPERATIONS, command=command, cores=synthetic.CORES
    ) as writer:
        diagnosis = diagnosing(writer)
        shown = _Shown(totals, clock, story, writer, diagnosis, meter)
        surface.begin(shown.view(_says(scenario, 0)))
        for window in synthetic.windows(
            scenario.story, played.seed, story.mono_start_ns, story.boot_start_ns
        ):
            if surface.stop_requested.wait(1 / played.speed):
                break
            story.elapsed_ns += SECOND
            totals.add(window)
            if meter:
                meter.add(window)
            writer.write(window)
            diagnosis.consider(window.end_ns)
            if surface.wants_records:
                surface.records(records.lines(window))
            surface.update(shown.view(_says(scenario, story.elapsed_ns)))
        diagnosis.conclude()
    code = 1 if writer.status else 0
    surface.end(shown.known(last=True), code)
    return code


def _says(scenario: Scenario, elapsed_ns: int) -> str:
    began = [each.says for start, _, each in timed(scenario.story.phases, 0) if start <= elapsed_ns]
    return began[-1]


class _Shown:
    """Makes the views."""

    def __init__(
        self,
        totals: LiveTotals,
        clock: Clock,
        story: StoryTime,
        writer: Writer,
        diagnosis: DemoDiagnosis,
        meter: Meter | None,
    ) -> None:
        self._meter = meter
        self._totals, self._clock, self._story = totals, clock, story
        self._writer, self._diagnosis = writer, diagnosis
        self.last = LiveView(0, 0)

    def view(self, says: str) -> LiveView:
        view = self._totals.view(self._clock.now_ns, self._story.elapsed_ns, self._diagnosis.steps)
        self.last = replace(
            view,
            targets=tuple(LiveTarget(each.pid, each.comm) for each in view.processes)
            or (LiveTarget(synthetic.TRAINER, synthetic.COMM),),
            overhead=Overhead(),
            warnings=(f"{MADE_UP}{says}",),
        )
        return self.known()

    def known(self, last: bool = False) -> LiveView:
        """The last view once more, with what is known by now. `last`: it is over."""
        writer = self._writer
        self.last = replace(
            self.last,
            losses={**self.last.losses, **writer.dropped},
            database=DatabaseStatus(str(writer.path), writer.size_bytes(), writer.status),
            findings=self._diagnosis.findings,
            past=self._diagnosis.past,
            looked_ns=self._diagnosis.looked_ns,
            bound=self._diagnosis.bound,
        )
        if self._meter:
            self._meter.observe(self.last, last)
        return self.last


def remove(path: Path) -> None:
    """Forget an earlier demo."""
    try:
        for side in ("", "-wal", "-shm"):
            path.with_name(path.name + side).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot replace the demo's recording {path}: {error.strerror}",
            hint="Record it elsewhere: ingero demo --db FILE",
        ) from error


def default_path() -> Path:
    """Where it is kept, and found again without --db: INGERO_DB, unless a real job is recorded there."""
    named = location.default_path()
    return named if os.environ.get("INGERO_DB") and _only_demos(named) else location.demo_path()


def _only_demos(path: Path) -> bool:
    """Whether nothing is lost with it."""
    if not path.exists():
        return True
    try:
        with Reader(path) as reader:
            return all(each.node == NODE for each in reader.recordings())
    except IngeroError:
        return False
