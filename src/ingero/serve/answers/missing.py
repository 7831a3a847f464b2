"""What an answer lacks, and says so: losses by reason, calls before the probes were on, calls that are not
timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ingero.model.report import Loss, NotWatched
from ingero.model.window import CALL_TIMES, FIRST_CALLS
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.units import SECOND, clean

# What is missing from a recording, by reason.

# What could not be stored at the end lies after the last window that was.
_END = "SELECT MAX(ended_ns) FROM recording WHERE last_ns >= ? AND last_ns < ?"


def losses_within(reader: Reader, from_ns: int, to_ns: int) -> list[Loss]:
    """Every reason with its count, most first."""
    to_ns = max(to_ns, (reader.rows(_END, (from_ns, to_ns))[0][0] or 0) + 1)
    rows = reader.rows(
        "SELECT reason, SUM(count), MIN(start_ns), MAX(end_ns) FROM losses"
        " WHERE end_ns > ? AND start_ns < ? GROUP BY reason ORDER BY 2 DESC",
        (from_ns, to_ns),
    )
    return [Loss(str(reason), int(count), int(first), int(last)) for reason, count, first, last in rows]


# Calls missing from the beginning of a process: made before the probes of their library were on.
#
# How long that was is recorded; how many calls it made meanwhile nobody knows.


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


# Processes whose calls were counted and not timed for their own safety (attach/probe_cost.py).


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
