"""NCCL communicators: where each process keeps what of them, and whose could not be read.

The kernel side reads a communicator when it first sees it (probes/comms.bpf.h); it is told
here where to look, before the first probe of the library is on. A library file is read once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.discover.communicator_layout import CommLayout
from ingero.discover.libraries import Library
from ingero.model import layout
from ingero.model.layout import CallFlag, CommState
from ingero.model.operations import Operation
from ingero.model.window import Records, Unwatchable

MAX_FILES = 1024
WHAT = "nccl"


class Communicators:
    """One for a trace."""

    def __init__(self, operations: Iterable[Operation], readers: Asking) -> None:
        self._readers = readers
        self._files: dict[tuple[int, int], CommLayout | str | None] = {}
        self._why: dict[int, str] = {}
        self._told: set[tuple[int, str]] = set()
        collectives = [each.number for each in operations if each.kind == "collective"]
        self._collectives = np.array(collectives, np.int64)

    def describe(self, pid: int, libraries: Iterable[Library]) -> Records:
        """For the kernel side: one row of comm_layout."""
        row = np.zeros((), layout.COMM_LAYOUT)
        found = {self._layout(each) for each in libraries if each.kind in ("nccl", "static")} - {None}
        self._why.pop(pid, None)
        if not found:
            return row
        known = {each for each in found if isinstance(each, CommLayout)}
        if len(found) > 1 or not known:
            row["state"] = CommState.COMMS_UNREADABLE
            self._why[pid] = (
                "it has several NCCL libraries that keep them in different ways"
                if len(found) > 1
                else str(next(iter(found)))
            )
            return row
        (one,) = known
        row["state"], row["magic"] = CommState.COMMS_READABLE, one.magic
        row["hash_at"], row["rank_at"] = one.hash_at, one.rank_at
        return row

    def _layout(self, library: Library) -> CommLayout | str | None:
        if library.file not in self._files:
            if len(self._files) >= MAX_FILES:
                self._files.clear()
            try:
                found = self._readers.ask(Reading.communicator, library.path_for_kernel)
            except UnreadError as error:
                return str(error)
            if found is None:  # seen while it was being loaded: it will be seen again
                return None
            self._files[library.file] = found
        return self._files[library.file]

    def unread(self, calls: Records) -> list[Unwatchable]:
        """Processes with collectives on communicators of which nothing is known; each is told once."""
        unknown = np.isin(calls["op"], self._collectives) & (calls["flags"] & CallFlag.CALL_COMM_KNOWN == 0)
        found = []
        for pid in np.unique(calls["h"]["pid"][unknown]).tolist():
            why = self._why.get(pid, "what was read in their place cannot be right")
            if (pid, why) not in self._told:
                self._told.add((pid, why))
                found.append(
                    Unwatchable(pid, WHAT, f"hash and rank of NCCL communicators are not known: {why}")
                )
        return found

    def forget(self, pids: Iterable[int]) -> None:
        gone = set(pids)
        self._why = {pid: why for pid, why in self._why.items() if pid not in gone}
        self._told = {each for each in self._told if each[0] not in gone}
