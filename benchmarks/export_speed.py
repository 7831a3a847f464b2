"""How long a million events take to become a timeline, and how much memory."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, Section, at_most
from benchmarks.large_database import again_and_again, dense, template
from benchmarks.start_up import byte_compile, peak_bytes, run_ms
from ingero.clock import Clock
from ingero.scenarios import synthetic
from ingero.store.writer import Writer

TITLE = "Exporting a timeline"
EVENTS, QUICK_EVENTS = 1_000_000, 100_000
TIME_TARGET_S, MEMORY_TARGET_MB = 30, 300


def _build(path: Path, events: int) -> int:
    """Made-up seconds stored by the real writer; returns how many events there are."""
    windows = [dense(window) for window in template(time.monotonic_ns())]
    stored = 0
    with Writer(path, "bench", Clock.now(), synthetic.OPERATIONS) as writer:
        for window in again_and_again(windows):
            if status := writer.write(window):
                raise RuntimeError(f"cannot build the database: {status}")
            stored += len(window.calls) + len(window.waits)
            if stored >= events:
                return stored
    raise AssertionError("windows do not end")


def _figures(database: Path, folder: Path, name: str) -> list[Figure]:
    out = folder / f"trace.{name}"
    words = ("export", "--db", str(database), "--format", "perfetto", "-o", str(out))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    took_s = run_ms(*words) / 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = out.stat().st_size
    peak_mb = peak_bytes(*words) / 1e6
    return [
        at_most(f".{name}: time", took_s, TIME_TARGET_S, f"{took_s:.1f} s ({cpu_s:.1f} s on a core)", " s"),
        at_most(f".{name}: peak memory", peak_mb, MEMORY_TARGET_MB, f"{peak_mb:.0f} MB", " MB"),
        Figure(f".{name}: size", f"{size / 1e6:.0f} MB"),
    ]


METHOD = """\
Wall time of the installed script, byte-compiled, from start to exit, once for each form. The database is
written by the real writer from made-up seconds of a job."""

RESOLVES = """\
The time follows the number of events and of their arguments, and the processor's speed. Memory does not
follow the number of events: SQLite sorts them in a temporary file."""


def measure(quick: bool) -> Section:
    byte_compile()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stored = _build(folder / "events.db", QUICK_EVENTS if quick else EVENTS)
        figures = [Figure("events exported", f"{stored:,}")]
        for form in ("pftrace", "json"):
            figures += _figures(folder / "events.db", folder, form)
    return Section(TITLE, tuple(figures), METHOD, RESOLVES)
