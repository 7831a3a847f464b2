"""Calls missing from the beginning of a process: made before the probes of their library were on.

How long that was is recorded; how many calls it made meanwhile nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ingero.model.report import NotWatched
from ingero.model.window import FIRST_CALLS
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.units import SECOND, clean

MAX_TOLD = 5
# Stored with the end of the second it was found in.
_LATE = "SELECT pid, why FROM not_watched WHERE what = ? AND at_ns >= ? AND at_ns <= ? ORDER BY at_ns, why"


def late_processes(reader: Reader, when: TimeRange) -> dict[int, list[str]]:
    """Why calls are missing, by process."""
    found: dict[int, list[str]] = {}
    for pid, why in reader.rows(_LATE, (FIRST_CALLS, when.from_ns, when.to_ns + SECOND)):
        found.setdefault(pid, []).append(clean(why, 120))
    return found


def late_calls(processes: Mapping[int, Sequence[str]]) -> Iterator[NotWatched]:
    for pid, whys in list(processes.items())[:MAX_TOLD]:
        yield NotWatched(
            f"the first calls of process {pid}", f"{'; '.join(whys)}; calls then are not counted"
        )
    if len(processes) > MAX_TOLD:
        more = len(processes) - MAX_TOLD
        yield NotWatched(f"the first calls of {more} more processes", "their probes were on late as well")
