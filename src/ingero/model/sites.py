"""Where calls, waits and time on a core come from: sums per stack.

A stack is a number; `Sites.stacks` says what stands behind it, 0 is "not known".
Every question is about one process, or about all, and a stretch of time.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ingero.model.stack import Frame
from ingero.model.window import Records

SAMPLES_PER_SECOND = 49  # odd, so that it does not march in step with what programs do by the clock
SAMPLE_NS = 1_000_000_000 / SAMPLES_PER_SECOND

CALL_SITES = np.dtype(
    [
        ("pid", "<i8"),
        ("tid", "<i8"),
        ("op", "<i8"),  # key of Facts.ops
        ("stack", "<i8"),
        ("count", "<f8"),  # calls, those without a record of their own included
        ("ns", "<f8"),
        ("bytes", "<f8"),
    ]
)
WAIT_SITES = np.dtype(
    [
        ("pid", "<i8"),
        ("tid", "<i8"),
        ("bucket", "<i8"),
        ("op", "<i8"),  # the traced call it was in
        ("gil", "<i8"),
        ("holder_tid", "<i8"),  # of the interpreter's lock when the wait began; 0: not known
        ("stack", "<i8"),
        ("count", "<f8"),
        ("ns", "<f8"),
    ]
)
SAMPLE_SITES = np.dtype(
    [
        ("pid", "<i8"),
        ("tid", "<i8"),
        ("bucket", "<i8"),
        ("op", "<i8"),
        ("flags", "<i8"),  # layout.SampleFlag
        ("stack", "<i8"),
        ("count", "<f8"),
    ]
)
SECOND_SITES = np.dtype([("start_ns", "<i8"), ("tid", "<i8"), ("stack", "<i8"), ("count", "<f8")])
KEPT_SITES = np.dtype([("stack", "<i8"), ("count", "<f8"), ("bytes", "<f8")])


class Sites:
    """This one knows of none: a recording without stacks."""

    def calls(self, pid: int | None, from_ns: int, to_ns: int) -> Records:  # noqa: ARG002
        """CALL_SITES: calls of the application, not those made inside another."""
        return np.zeros(0, CALL_SITES)

    def waits(self, pid: int | None, from_ns: int, to_ns: int) -> Records:  # noqa: ARG002
        """WAIT_SITES: waits of a millisecond and longer."""
        return np.zeros(0, WAIT_SITES)

    def samples(self, pid: int | None, from_ns: int, to_ns: int) -> Records:  # noqa: ARG002
        """SAMPLE_SITES: how often a thread was seen on a core."""
        return np.zeros(0, SAMPLE_SITES)

    def samples_by_second(self, pid: int, from_ns: int, to_ns: int) -> Records:  # noqa: ARG002
        """SECOND_SITES: the same, second by second."""
        return np.zeros(0, SECOND_SITES)

    def collecting(self, pid: int, from_ns: int, to_ns: int) -> Records:  # noqa: ARG002
        """SECOND_SITES, without stacks: how often a thread was seen inside Python's garbage collector."""
        return np.zeros(0, SECOND_SITES)

    def kept(self, pid: int, from_ns: int, to_ns: int) -> Records:  # noqa: ARG002
        """KEPT_SITES: allocations on the GPU that were not freed again."""
        return np.zeros(0, KEPT_SITES)

    def last_call(self, pid: int, ops: Iterable[int], to_ns: int) -> int:  # noqa: ARG002
        """The stack of the last call of these operations."""
        return 0

    def of_event(self, event_id: str) -> int:  # noqa: ARG002
        """The stack of one event, by the id users see."""
        return 0

    def stacks(self, hashes: Iterable[int]) -> dict[int, tuple[Frame, ...]]:  # noqa: ARG002
        """Frames, innermost first; what is not known is left out."""
        return {}
