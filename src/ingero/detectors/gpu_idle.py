"""Idle GPU: the GPU idles, there is work, and no other kind explains most of it.

Shows as   a GPU that says itself that it is busy for less than three quarters of the time.
           Where no GPU tells: a server that waits, while its clients wait for an answer.
Proof      the GPU's busy share, and what the chain that feeds it did meanwhile; who waited for whom.
Not this   a program that sleeps on purpose or waits to be asked (underutilised); what
           another kind explains: then that one is told.
Blind to   GPUs that do not tell how busy they are, but for such a server; clients on other machines;
           kernels that fill only a part of one; whether a server waits for fuller batches because somebody
           weighed that against its answers' time: it is told, if its clients wait.
"""

from __future__ import annotations

from ingero.detectors import proofs
from ingero.detectors.detector import LOST, WAITS_FOR, Case, Detector
from ingero.detectors.slowdown import advise, holds_up
from ingero.model.words import BUCKETS
from ingero.units import format_rounded


def headline(case: Case) -> str:
    share = case.ns / max(case.wall_ns, 1)
    what = BUCKETS[case.main.bucket].does if case.main else "waits"
    if holds_up(case):
        what = "waits, and others wait for its answer"
    return f"The GPU of {case.job.comm} is idle {format_rounded(share)} of the time while it {what}"


DETECTOR = Detector(
    name="gpu-idle",
    needs=frozenset({"calls", "sched"}),
    either=frozenset({"sched", "gpu"}),
    rest=True,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
    confidence=0.7,
    lines=(LOST, WAITS_FOR),
)
