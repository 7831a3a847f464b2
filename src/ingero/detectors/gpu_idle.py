"""Idle GPU: the GPU idles, there is work, and no other kind explains most of it.

Shows as   a GPU that says itself that it is busy for less than three quarters of the time.
Proof      the GPU's busy share, and what the chain that feeds it did meanwhile.
Not this   a program that sleeps on purpose or waits to be asked (underutilised); what
           another kind explains: then that one is told.
Blind to   GPUs that do not tell how busy they are; kernels that fill only a part of one.
"""

from __future__ import annotations

from ingero.detectors import proofs
from ingero.detectors.detector import LOST, WAITS_FOR, Case, Detector
from ingero.detectors.slowdown import advise
from ingero.model.words import BUCKETS


def headline(case: Case) -> str:
    main = case.main
    what = BUCKETS[main.bucket].does if main else "waits"
    return (
        f"The GPU of {case.job.comm} is idle {case.ns / max(case.wall_ns, 1):.0%} of the time while it {what}"
    )


DETECTOR = Detector(
    name="gpu-idle",
    needs=frozenset({"calls", "sched", "gpu"}),
    rest=True,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
    confidence=0.7,
    lines=(LOST, WAITS_FOR),
)
