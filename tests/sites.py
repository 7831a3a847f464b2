"""Lines of made-up programs, and what was seen at them, for tests of the diagnosis.

A line is written `forward train.py:142`; its stack has a native frame and a library's
above it and `main` below, so that a test fails where the wrong frame is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model import sites as model
from ingero.model.layout import SampleFlag
from ingero.model.sites import Sites
from ingero.model.stack import Frame, ResolvedStack
from ingero.model.window import BUCKET_NAMES

LIBRARY = "/usr/lib/python3/dist-packages/torch/nn/modules/module.py"


def frames(line: str) -> tuple[Frame, ...]:
    """The stack of `forward train.py:142`, innermost first."""
    function, _, place = line.partition(" ")
    file, _, number = place.rpartition(":")
    return (
        Frame("native", "cudaLaunchKernel", None, None, "libcudart.so.12"),
        Frame("python", "Module._call_impl", LIBRARY, 1750, None),
        Frame("python", function, file, int(number), None),
        Frame("python", "main", "train.py", 1, None),
    )


def resolved(line: str, number: int) -> ResolvedStack:
    return ResolvedStack(number, frames(line))


class Code(Sites):
    """What was seen where; every row has its instant."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}
        self._rows: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        self.events: dict[str, str] = {}  # event id: line
        self.last: dict[int, str] = {}  # PID: line of its last call

    def hash(self, line: str) -> int:
        return self._hashes.setdefault(line, len(self._hashes) + 1) if line else 0

    def call(
        self, at_ns: int, pid: int, tid: int, op: int, line: str, count: int, ns: float, size: int
    ) -> None:
        self._add("calls", at_ns, pid, tid, op, self.hash(line), count, ns, size)

    def wait(
        self,
        at_ns: int,
        pid: int,
        tid: int,
        bucket: str,
        line: str,
        ns: float,
        gil: bool,
        holder: int,
        op: int,
    ) -> None:
        number = BUCKET_NAMES.index(bucket)
        self._add("waits", at_ns, pid, tid, number, op, gil, holder, self.hash(line), 1, ns)

    def sample(self, at_ns: int, pid: int, tid: int, bucket: str, line: str, count: int, flags: int) -> None:
        number = BUCKET_NAMES.index(bucket)
        self._add("samples", at_ns, pid, tid, number, 0, flags, self.hash(line), count)

    def keep(self, line: str, size: int) -> None:
        self._add("kept", 0, self.hash(line), 1, size)

    def _add(self, table: str, at_ns: int, *row: Any) -> None:
        self._rows.setdefault(table, []).append((at_ns, row))

    def _table(
        self, table: str, dtype: np.dtype[np.void], pid: int | None, from_ns: int, to_ns: int
    ) -> NDArray[np.void]:
        rows = [
            row
            for at_ns, row in self._rows.get(table, [])
            if from_ns <= at_ns < to_ns and (pid is None or row[0] == pid)
        ]
        return np.array(rows, dtype)

    def calls(self, pid: int | None, from_ns: int, to_ns: int) -> NDArray[np.void]:
        return self._table("calls", model.CALL_SITES, pid, from_ns, to_ns)

    def waits(self, pid: int | None, from_ns: int, to_ns: int) -> NDArray[np.void]:
        return self._table("waits", model.WAIT_SITES, pid, from_ns, to_ns)

    def samples(self, pid: int | None, from_ns: int, to_ns: int) -> NDArray[np.void]:
        return self._table("samples", model.SAMPLE_SITES, pid, from_ns, to_ns)

    def samples_by_second(self, pid: int, from_ns: int, to_ns: int) -> NDArray[np.void]:
        rows = [
            (at_ns, row[1], row[5], row[6])
            for at_ns, row in self._rows.get("samples", [])
            if from_ns <= at_ns < to_ns and row[0] == pid
        ]
        return np.array(rows, model.SECOND_SITES)

    def collecting(self, pid: int, from_ns: int, to_ns: int) -> NDArray[np.void]:
        rows = [
            (at_ns, row[1], 0, row[6])
            for at_ns, row in self._rows.get("samples", [])
            if from_ns <= at_ns < to_ns and row[0] == pid and row[4] & SampleFlag.SAMPLE_COLLECTING
        ]
        return np.array(rows, model.SECOND_SITES)

    def kept(self, pid: int, from_ns: int, to_ns: int) -> NDArray[np.void]:
        return np.array([row for _, row in self._rows.get("kept", [])], model.KEPT_SITES)

    def last_call(self, pid: int, ops: Iterable[int], to_ns: int) -> int:
        return self.hash(self.last.get(pid, ""))

    def of_event(self, event_id: str) -> int:
        return self.hash(self.events.get(event_id, ""))

    def stacks(self, hashes: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
        known = {number: line for line, number in self._hashes.items()}
        return {number: frames(known[number]) for number in hashes if number in known}
