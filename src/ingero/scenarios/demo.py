"""`ingero demo`: the made-up job through the real pipeline, shown and recorded.

Time is the stream's own: twenty seconds of it pass as fast as `speed` says and
end now, so that `--since 5m` finds them. What is added up, stored and shown is
the same code as in a trace; only the probes are missing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from ingero.clock import Clock
from ingero.errors import StoreError
from ingero.model.live import DatabaseStatus, LiveView, Overhead, Surface, Target
from ingero.scenarios import synthetic
from ingero.serve.answers.live import LiveTotals
from ingero.serve.answers.records import RecordStream
from ingero.store import location
from ingero.store.writer import Writer

NODE = "demo"
COMMAND = "ingero demo"
SEED = 7
SPEED = 10.0


@dataclass(frozen=True)
class DemoOptions:
    """What to play, and where to keep it."""

    db: Path
    seed: int = SEED
    speed: float = SPEED  # stream seconds a second
    fresh: bool = False  # the file is the demo's own: begin anew


class StreamTime:
    """The stream's clock: stands still between windows."""

    def __init__(self, length_ns: int) -> None:
        self.elapsed_ns = 0
        self._wall = time.time_ns() - length_ns
        self.mono_start_ns = time.monotonic_ns() - length_ns
        self.boot_start_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - length_ns

    def clock(self) -> Clock:
        return Clock(
            lambda: self._wall + self.elapsed_ns,
            lambda: self.mono_start_ns + self.elapsed_ns,
            lambda: self.boot_start_ns + self.elapsed_ns,
        )


def run(options: DemoOptions, surface: Surface) -> int:
    """Play the demo; the exit code."""
    if options.fresh:
        remove(options.db)
    stream = StreamTime(sum(phase.seconds for phase in synthetic.PHASES) * synthetic.SECOND)
    clock = stream.clock()
    totals = LiveTotals(synthetic.OPERATIONS, NODE)
    records = RecordStream(synthetic.OPERATIONS, clock, NODE)
    with Writer(options.db, NODE, clock, synthetic.OPERATIONS, command=COMMAND) as writer:
        view = _view(totals, clock, stream, writer, "starting")
        surface.begin(view)
        for phase, window in synthetic.windows(options.seed, stream.mono_start_ns, stream.boot_start_ns):
            if surface.stop_requested.wait(1 / options.speed):
                break
            stream.elapsed_ns += synthetic.SECOND
            totals.add(window)
            writer.write(window)
            if surface.wants_records:
                surface.records(records.lines(window))
            view = _view(totals, clock, stream, writer, phase.name)
            surface.update(view)
    code = 1 if writer.status else 0
    surface.end(view, code)
    return code


def _view(totals: LiveTotals, clock: Clock, stream: StreamTime, writer: Writer, phase: str) -> LiveView:
    return replace(
        totals.view(clock.now_ns, stream.elapsed_ns),
        targets=(
            Target(synthetic.TRAINER, "python3", "python3 train.py --epochs 3", "nightly-retraining-0"),
        ),
        overhead=Overhead(),
        database=DatabaseStatus(str(writer.path), writer.size_bytes(), writer.status),
        warnings=(f"made-up events, {phase}",),
    )


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
    """Beside the real recordings."""
    return location.default_path().parent / "demo.db"
