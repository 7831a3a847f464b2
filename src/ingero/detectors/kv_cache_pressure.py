"""KV-cache pressure: the serving engine preempts requests because its cache is full.

Shows as   the serving engine's cache is full.
Proof      the engine's preemptions and cache usage.
Not this   a queue that is long for lack of compute (head-of-line).
Blind to   everything, so far: serving engines' own metrics are not read yet.
"""

from __future__ import annotations

from ingero.detectors.detector import Detector

DETECTOR = Detector(
    name="kv-cache-pressure",
    title="The serving engine's cache is full",
    needs=frozenset({"calls"}),
    unwatched="serving engines' own metrics are not read yet",
)
