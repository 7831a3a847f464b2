"""The cards while tracing: asked beside the loop, their news taken once a second, and which one a call
meant.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ingero.capture.gpu_poller import GpuPoller
from ingero.discover.gpu_devices import driver_version
from ingero.model.gpus import GpuNews
from ingero.model.window import Records, Unwatchable
from ingero.units import clean

# The cards while tracing: asked beside the loop, their news taken once a second.


class Gpus:
    """A poller that may be left out, and whose trouble is told once."""

    def __init__(self, wanted: bool) -> None:
        self._poller = GpuPoller() if wanted else None

    def start(self) -> None:
        if self._poller:
            self._poller.start()

    def take(self) -> GpuNews:
        return self._poller.take() if self._poller else GpuNews()

    def not_watched(self, news: GpuNews, warnings: dict[str, str]) -> list[Unwatchable]:
        """For the recording; and for whoever looks on, unless there is no driver to begin with."""
        for why in news.trouble if driver_version() is not None else ():
            warnings[f"gpu {why}"] = f"GPU counters: {clean(why)}"
        return [Unwatchable(0, "gpu", why) for why in news.trouble]

    def close(self) -> None:
        if self._poller:
            self._poller.stop()


# Device numbers of calls turned into cards.
#
# A thread that never chose a device while we watched is unknown (-1), unless its
# process can see only one card.


def number_cards(calls: Records, cards_of: Mapping[int, tuple[int, ...] | None]) -> None:
    """Replace gpu_id in place, process by process."""
    for pid in np.unique(calls["h"]["pid"]).tolist():
        cards = cards_of.get(pid)
        if cards is None:
            continue
        mine = calls["h"]["pid"] == pid
        device = calls["gpu_id"][mine]
        if len(cards) == 1:
            device = np.where(device < 0, 0, device)
        # One longer than the list: whatever is out of range or unknown ends there.
        table = np.array([*cards, -1], np.int32)
        known = (device >= 0) & (device < len(cards))
        calls["gpu_id"][mine] = table[np.where(known, device, len(cards))]
