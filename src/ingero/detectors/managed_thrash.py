"""Managed-memory thrash: pages of managed memory move between host and GPU all the time.

Shows as   managed memory moves back and forth between host and GPU.
Proof      faults of managed memory, which the driver serves.
Not this   first touches of managed memory.
Blind to   everything, so far: the driver's page faults are not recorded yet.
"""

from __future__ import annotations

from ingero.detectors.detector import Detector

DETECTOR = Detector(
    name="managed-thrash",
    title="Managed memory moves back and forth between host and GPU",
    needs=frozenset({"calls"}),
    unwatched="the driver's page faults are not recorded yet",
)
