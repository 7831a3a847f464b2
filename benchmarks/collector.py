"""What a collector takes, and that it loses nothing: every part of benchmarks/fleet, as one benchmark.

The parts are kept as they were measured (benchmarks/fleet/measured.json), so `make bench-fleet` can renew
one of them. Quick: of a handful of nodes, and nothing is kept.
"""

from __future__ import annotations

from benchmarks.figures import Section
from benchmarks.fleet import run

TITLE, PAGE = run.TITLE, "fleet.md"
FULL = run.Extent(day_s=900)
QUICK = run.Extent(nodes=20, feed_rounds=1, rate_rounds=1, kills=1, killed_nodes=20, day_s=0.01)


def measure(quick: bool) -> Section:
    found = {part: run.measured(part, QUICK if quick else FULL) for part in run.WORK}
    if quick:
        return run.section(found)
    known: dict[str, object] = {}
    for part, each in found.items():
        known = run.keep(part, each)
    return run.section(known)
