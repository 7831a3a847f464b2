"""GPU throttling: heat or power keeps the GPU below its clock.

Shows as   the GPU runs below its clock.
Proof      the driver's throttle reasons over the time the job was slow.
Not this   a card that idles at low clocks.
Blind to   everything, so far: the card's own counters (NVML) are not recorded yet.
"""

from __future__ import annotations

from ingero.detectors.detector import Detector

DETECTOR = Detector(
    name="gpu-throttled",
    title="The GPU runs below its clock",
    needs=frozenset({"calls"}),
    unwatched="the card's own counters (NVML) are not recorded yet",
)
