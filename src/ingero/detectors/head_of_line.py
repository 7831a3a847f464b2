"""Head-of-line blocking: long requests hold up short ones in a serving engine.

Shows as   long requests hold up short ones.
Proof      waiting requests behind a running one.
Not this   an engine that has no requests.
Blind to   everything, so far: serving engines' own metrics are not read yet.
"""

from __future__ import annotations

from ingero.detectors.detector import Detector

DETECTOR = Detector(
    name="head-of-line",
    title="Long requests hold up short ones",
    needs=frozenset({"calls"}),
    unwatched="serving engines' own metrics are not read yet",
)
