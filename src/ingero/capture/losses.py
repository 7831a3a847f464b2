"""What was dropped, by reason, since the last reading."""

from __future__ import annotations

import numpy as np

from ingero.model.layout import Loss
from ingero.native import _shim

REASONS = {
    int(reason): reason.name.removeprefix("LOSS_").lower() for reason in Loss if reason is not Loss.LOSSES
}


class LossBook:
    def __init__(self, fd: int, cpus: int) -> None:
        self._fd = fd
        self._counts = np.zeros(cpus, np.uint64)
        self._last = dict.fromkeys(REASONS, 0)

    def read(self) -> dict[str, int]:
        """Losses since the last reading, only those that happened."""
        found = {}
        for number, reason in REASONS.items():
            _shim.map_lookup(self._fd, number.to_bytes(4, "little"), self._counts)
            total = int(self._counts.sum())
            if total != self._last[number]:
                found[reason] = total - self._last[number]
                self._last[number] = total
        return found
