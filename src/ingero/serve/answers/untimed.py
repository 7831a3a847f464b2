"""Processes whose calls were counted and not timed for their own safety (attach/probe_cost.py)."""

from __future__ import annotations

from collections.abc import Iterator

from ingero.model.report import NotWatched
from ingero.model.window import CALL_TIMES
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.units import SECOND

MAX_NAMED = 5
# Told once for each process: it holds from then on.
_UNTIMED = "SELECT DISTINCT pid, why FROM not_watched WHERE what = ? AND at_ns <= ? ORDER BY pid"


def untimed_calls(reader: Reader, when: TimeRange) -> Iterator[NotWatched]:
    rows = list(reader.rows(_UNTIMED, (CALL_TIMES, when.to_ns + SECOND)))
    if rows:
        named = ", ".join(str(pid) for pid, _ in rows[:MAX_NAMED])
        more = f" and {len(rows) - MAX_NAMED} more" if len(rows) > MAX_NAMED else ""
        what = f"how long calls of process{'es' if len(rows) > 1 else ''} {named}{more} took"
        yield NotWatched(what, f"they are {rows[0][1]}")
