"""Pod restart: Kubernetes restarted or evicted a pod of the job.

Shows as   a pod of the job was restarted or evicted.
Proof      the pod's restart count and reason.
Not this   a process that ends by itself.
Blind to   everything, so far: the kubelet is not asked yet.
"""

from __future__ import annotations

from ingero.detectors.detector import Detector

DETECTOR = Detector(
    name="pod-restart",
    title="A pod of the job was restarted or evicted",
    needs=frozenset({"calls"}),
    unwatched="the kubelet is not asked yet",
)
