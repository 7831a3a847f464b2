"""Targets whose calls are counted and not timed, because a seccomp filter may kill them for a return probe.

The kernel side decides it call by call (attach/probe_cost.py says why); here it is told, once for each.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ingero.attach.kernel import KernelSide
from ingero.discover.processes import is_filtered
from ingero.model.layout import Spare
from ingero.model.window import CALL_TIMES, NotWatched, Window

WHY = "counted and not timed: this kernel lets a seccomp filter kill for a probe at the return"


class Filtered:
    """Which processes were told of."""

    def __init__(self, kernel: KernelSide, spare: Spare) -> None:
        kernel.settings = replace(kernel.settings, spare=spare)
        self._spare = spare
        self._told: set[int] = set()

    def fill(self, window: Window, live: Collection[int], warnings: dict[str, str]) -> None:
        """Look at those that were not told of; a filter may be installed at any time."""
        if self._spare is Spare.SPARE_NOBODY:
            return
        self._told.intersection_update(live)  # a number may become another's
        for pid in live:
            if pid not in self._told and (self._spare is Spare.SPARE_EVERYBODY or is_filtered(pid)):
                self._told.add(pid)
                window.not_watched.append(NotWatched(pid, CALL_TIMES, WHY))
        if self._told:
            warnings[CALL_TIMES] = f"calls of {len(self._told)} processes are {WHY}; `ingero check` says more"
