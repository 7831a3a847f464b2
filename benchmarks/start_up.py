"""How long a user waits for `ingero --help`, for statistics and for the diagnosis of a large recording."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import jobs
from benchmarks.figures import Figure, Section, at_most
from benchmarks.large_database import busy_hour, large_database

TITLE = "Start-up and questions"
HELP_TARGET_MS, QUERY_TARGET_S = 150, 1
EXPLAIN_TARGET_S, EXPLAIN_TARGET_MB = 2, 500
HELPS, QUERIES = 15, 5
SCRIPT = Path(sys.executable).parent / "ingero"  # as pip made it


def run_ms(*words: str) -> float:
    """Wall time of a command that must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        pid = os.posix_spawn(
            str(SCRIPT),
            [str(SCRIPT), *words],
            jobs.environment(Path(folder)),
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)],
        )
        _, status = os.waitpid(pid, 0)
        took = (time.perf_counter() - begin) * 1000
    if status:
        raise RuntimeError(f"ingero {' '.join(words)} failed ({os.waitstatus_to_exitcode(status)})")
    return took


def peak_bytes(*words: str) -> int:
    """Peak memory of a command that must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(jobs.HERE / "peak_memory.py"), str(SCRIPT), *words],
            env=jobs.environment(Path(folder)),
            stdout=subprocess.PIPE,
            check=True,
        )
    return int(done.stdout) * 1024


def byte_compile() -> None:
    """As `make build` leaves it; otherwise the first run would pay for it."""
    import ingero

    subprocess.run([sys.executable, "-m", "compileall", "-q", str(Path(ingero.__file__).parent)], check=True)


def _help_figure() -> Figure:
    run_ms("--help")
    took = statistics.median(run_ms("--help") for _ in range(HELPS))
    bare = statistics.median(_python_ms() for _ in range(HELPS))
    shown = f"{took:.0f} ms (Python alone {bare:.0f} ms)"
    return at_most("`ingero --help`", took, HELP_TARGET_MS, shown, " ms")


def _python_ms() -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - begin) * 1000


def _query_figures(path: Path) -> list[Figure]:
    runs = [run_ms("query", "--db", str(path)) for _ in range(QUERIES)]
    recent = statistics.median(run_ms("query", "--db", str(path), "--since", "5m") for _ in range(QUERIES))
    median = statistics.median(runs) / 1000
    return [
        at_most("`ingero query`, the whole recording", median, QUERY_TARGET_S, f"{median:.2f} s", " s"),
        Figure("`ingero query --since 5m`", f"{recent / 1000:.2f} s"),
        Figure("the first query's peak memory", f"{peak_bytes('query', '--db', str(path)) / 1e6:,.0f} MB"),
    ]


def _explain_figures(path: Path) -> list[Figure]:
    took = statistics.median(run_ms("explain", "--db", str(path)) for _ in range(QUERIES)) / 1000
    peak = peak_bytes("explain", "--db", str(path)) / 1e6
    return [
        at_most("`ingero explain`, all of that hour", took, EXPLAIN_TARGET_S, f"{took:.2f} s", " s"),
        at_most("its peak memory", peak, EXPLAIN_TARGET_MB, f"{peak:,.0f} MB", " MB"),
    ]


def _calls_seen(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (calls,) = connection.execute("SELECT SUM(count) FROM operation_second").fetchone()
    return f"{calls:,} calls seen; {_content(path)}"


def _content(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows, windows = connection.execute(
            "SELECT (SELECT COUNT(*) FROM event), (SELECT COUNT(*) FROM window)"
        ).fetchone()
    return f"{path.stat().st_size / 1e6:,.0f} MB, {rows:,} events, {windows / 3600:.1f} h of windows"


METHOD = """\
Wall time of the installed script, byte-compiled, from start to exit: median of {helps} for `--help`, of
{queries} for queries and diagnoses. The databases are written by the real writer from made-up windows and
kept between runs; they were read before, so they lie in the page cache as far as they fit."""

RESOLVES = """\
Start-up is mostly Python's imports, so it follows the processor's speed and the disk cache. A query of
the whole recording reads the per-minute roll-up, not the events: its time follows the length of the
recording and the number of processes, not the number of calls. So does a diagnosis, from sums per second,
and with the calls that mark iterations."""


def measure(quick: bool) -> Section:
    byte_compile()
    figures, notes = [_help_figure()], []
    if not quick:
        path, built_s = large_database()
        figures += [Figure("the database asked", _content(path)), *_query_figures(path)]
        hour, hour_built_s = busy_hour()
        figures += [Figure("a busy hour, default recording", _calls_seen(hour)), *_explain_figures(hour)]
        if built_s + hour_built_s:
            notes.append(f"Databases were built in this run, in {built_s + hour_built_s:.0f} s.")
    method = METHOD.format(helps=HELPS, queries=QUERIES)
    return Section(TITLE, tuple(figures), method, RESOLVES, tuple(notes))
