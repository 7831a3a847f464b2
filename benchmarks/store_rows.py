"""What a stored call costs: time and bytes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.figures import Figure, Section
from benchmarks.large_database import moved
from ingero.clock import Clock
from ingero.model.window import Records, Window
from ingero.scenarios import incident, synthetic
from ingero.store.writer import Writer

TITLE = "Storing calls"
ROWS = 20_000  # of a window
WINDOWS, QUICK_WINDOWS = 15, 5
SECOND = 1_000_000_000


def _calls(start_ns: int) -> Records:
    """As varied as a job's: every operation, many durations."""
    story = incident.SCENARIO.story
    calls = np.concatenate([window.calls for window in synthetic.windows(story, 11, start_ns)])
    repeated = np.resize(calls, ROWS)
    repeated["h"]["start_ns"] = np.sort(repeated["h"]["start_ns"])
    return repeated


def measure(quick: bool) -> Section:
    count = QUICK_WINDOWS if quick else WINDOWS
    start_ns = time.monotonic_ns()
    calls = _calls(start_ns)
    windows = [
        Window(start_ns + at * SECOND, start_ns + (at + 1) * SECOND, calls=moved(calls, at * SECOND))
        for at in range(count)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.db")
        with Writer(path, "bench", Clock.now(), synthetic.OPERATIONS) as writer:
            empty_bytes = path.stat().st_size
            took_ns = [_write_ns(writer, window) for window in windows]
        size = path.stat().st_size - empty_bytes
    rows = ROWS * count
    figures = (
        Figure("µs per call row: median window, slowest", _per_row(took_ns)),
        Figure("bytes per call row", f"{size / rows:.0f}"),
        Figure("rows a core can write in a second", f"{ROWS / (float(np.median(took_ns)) / 1e9):,.0f}"),
    )
    return Section(TITLE, figures, METHOD.format(windows=count, rows=ROWS), RESOLVES)


def _write_ns(writer: Writer, window: Window) -> int:
    begin = time.perf_counter_ns()
    status = writer.write(window)
    if status:
        raise RuntimeError(f"cannot write: {status}")
    return time.perf_counter_ns() - begin


def _per_row(took_ns: list[int]) -> str:
    return f"{float(np.median(took_ns)) / ROWS / 1000:.2f}, {max(took_ns) / ROWS / 1000:.2f}"


METHOD = """\
`Writer.write` on {windows} windows of {rows:,} call records each, one transaction per window, with the
settings a trace uses. Bytes are the file's growth after everything was folded into it, divided by the
rows."""

RESOLVES = """\
The disk below is in it as far as the writer waits for it; a slow one shows in the slowest window first.
What a default trace stores is far less than a row per call: how fast its database grows is measured, from
a real trace, under the agent's cost above, and extrapolated there."""
