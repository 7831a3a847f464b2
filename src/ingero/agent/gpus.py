"""The cards while tracing: asked beside the loop, their news taken once a second."""

from __future__ import annotations

from ingero.capture.gpu_poller import GpuPoller
from ingero.discover.gpu_devices import driver_version
from ingero.model.gpus import GpuNews
from ingero.model.window import NotWatched
from ingero.units import clean


class Gpus:
    """A poller that may be left out, and whose trouble is told once."""

    def __init__(self, wanted: bool) -> None:
        self._poller = GpuPoller() if wanted else None

    def start(self) -> None:
        if self._poller:
            self._poller.start()

    def take(self) -> GpuNews:
        return self._poller.take() if self._poller else GpuNews()

    def not_watched(self, news: GpuNews, warnings: dict[str, str]) -> list[NotWatched]:
        """For the recording; and for whoever looks on, unless there is no driver to begin with."""
        for why in news.trouble if driver_version() is not None else ():
            warnings[f"gpu {why}"] = f"GPU counters: {clean(why)}"
        return [NotWatched(0, "gpu", why) for why in news.trouble]

    def close(self) -> None:
        if self._poller:
            self._poller.stop()
