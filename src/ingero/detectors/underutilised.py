"""Underutilisation: nothing is wrong, the GPU has too little to do.

Shows as   the GPU has too little to do.
Proof      low utilisation with nothing lost.
Not this   a job that waits for something, which is what the other kinds are about.
Blind to   everything, so far: the card's own utilisation (NVML) is not recorded yet.
"""

from __future__ import annotations

from ingero.detectors.detector import Detector

DETECTOR = Detector(
    name="underutilised",
    title="The GPU has too little to do",
    needs=frozenset({"calls"}),
    unwatched="the card's own utilisation (NVML) is not recorded yet",
)
