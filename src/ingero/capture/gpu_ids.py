"""Device numbers of calls turned into cards.

A thread that never chose a device while we watched is unknown (-1), unless its
process can see only one card.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ingero.model.window import Records


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
