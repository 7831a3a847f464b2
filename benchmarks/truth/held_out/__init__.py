"""Cases that detectors were not tuned on, reported apart from the others.

Whoever writes them has not written a detector; the form is that of faults/*.py: a
function that draws a run from a `random.Random`, and a `Case` in CASES.
"""

from __future__ import annotations

from benchmarks.truth.drawn import Case
from benchmarks.truth.held_out import calls, combined, cpu, data, healthy, host, peers

CASES: tuple[Case, ...] = (
    *cpu.CASES, *data.CASES, *host.CASES, *peers.CASES, *calls.CASES, *combined.CASES, *healthy.CASES,
)  # fmt: skip
