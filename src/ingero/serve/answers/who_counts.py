"""Who is worth naming: a process that had a core for microseconds while another had it for seconds is not."""

from __future__ import annotations

from collections.abc import Sequence

from ingero.model.finding import Who

LEAST_SHARE = 0.01  # of what the one with most took; frontend/src/diagnosis.js has the same
OWN = "the job's own"  # of a thread of the process that lost the time


def who_counts(who: Sequence[Who]) -> list[Who]:
    """Each process once, longest first, without those that took next to nothing."""
    total: dict[tuple[int | None, str, str | None], int] = {}
    for each in who:
        key = (each.pid, each.comm, each.container)
        total[key] = total.get(key, 0) + each.ns
    least = LEAST_SHARE * max(total.values(), default=0)
    found = [Who(pid, comm, ns, place) for (pid, comm, place), ns in total.items() if ns >= least]
    return sorted(found, key=lambda each: -each.ns)
