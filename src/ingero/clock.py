"""Wall time: turns the kernel's clocks into Unix-epoch nanoseconds.

Records carry CLOCK_MONOTONIC, process starts CLOCK_BOOTTIME. One mapping serves
a whole recording and never runs backwards: a forward step of the wall clock
(NTP, suspend) counts from the moment it is seen, a backward step is noted and
otherwise ignored, because two records may never change their order.
Comparing clocks of different nodes is not done here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

STEP_NS = 10_000_000  # smaller differences are reading noise and slewing
READINGS = 5  # the tightest of these is kept: a preemption between two reads is not an offset

TimeSource = Callable[[], int]


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The wall clock was set, or the machine slept."""

    mono_ns: int  # when it was seen
    wall_ns: int  # what the wall clock said then
    delta_ns: int  # how far it jumped
    adopted: bool  # False: the mapping kept its old offset


def _boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Clock:
    """The mapping of one recording."""

    def __init__(self, wall: TimeSource, mono: TimeSource, boot: TimeSource) -> None:
        self._wall, self._mono, self._boot = wall, mono, boot
        self.steps: list[ClockStep] = []
        mono_ns, offset_ns = self._read()
        self._seen_offset_ns = offset_ns
        self._starts = np.array([np.iinfo(np.int64).min], np.int64)
        self._offsets = np.array([offset_ns], np.int64)
        boot_ns = boot()
        self._boot_starts = [boot_ns]
        self._boot_offsets = [mono_ns + offset_ns - boot_ns]

    @classmethod
    def now(cls) -> Clock:
        """A mapping that starts at this moment, with this machine's clocks."""
        return cls(time.time_ns, time.monotonic_ns, _boottime_ns)

    @property
    def mono_ns(self) -> int:
        return self._mono()

    @property
    def now_ns(self) -> int:
        """This moment on the mapping, which may differ from the wall clock after a backward step."""
        return self.wall_ns(self._mono())

    def _read(self) -> tuple[int, int]:
        best_gap, best = None, (0, 0)
        for _ in range(READINGS):
            before, wall, after = self._mono(), self._wall(), self._mono()
            if best_gap is None or after - before < best_gap:
                best_gap, best = after - before, (after, wall - (before + after) // 2)
        return best

    @overload
    def wall_ns(self, mono: int) -> int: ...
    @overload
    def wall_ns(self, mono: NDArray[np.integer]) -> NDArray[np.int64]: ...
    def wall_ns(self, mono: int | NDArray[np.integer]) -> int | NDArray[np.int64]:
        """Unix-epoch nanoseconds of monotonic instants; later stays later."""
        if not isinstance(mono, np.ndarray):
            at = int(np.searchsorted(self._starts, mono, side="right")) - 1
            return int(mono) + int(self._offsets[at])
        instants = mono.astype(np.int64)
        if len(self._offsets) == 1:
            return instants + int(self._offsets[0])
        segments = np.searchsorted(self._starts, instants, side="right") - 1
        offsets_ns: NDArray[np.int64] = self._offsets[segments]
        return instants + offsets_ns

    def boot_to_wall(self, boot_ns: int) -> int:
        """Unix-epoch nanoseconds of a CLOCK_BOOTTIME instant, such as a process start."""
        at = len(self._boot_starts) - 1
        while at > 0 and boot_ns < self._boot_starts[at]:
            at -= 1
        return boot_ns + self._boot_offsets[at]

    def observe(self) -> ClockStep | None:
        """Look at the wall clock again; called once a second. Returns the step, if there was one."""
        mono_ns, offset_ns = self._read()
        delta_ns = offset_ns - self._seen_offset_ns
        if abs(delta_ns) <= STEP_NS:
            return None
        self._seen_offset_ns = offset_ns
        adopted = offset_ns - int(self._offsets[-1]) > STEP_NS
        if adopted:
            self._adopt(mono_ns, offset_ns)
        step = ClockStep(mono_ns, mono_ns + offset_ns, delta_ns, adopted)
        self.steps.append(step)
        return step

    def _adopt(self, mono_ns: int, offset_ns: int) -> None:
        self._starts = np.append(self._starts, np.int64(mono_ns))
        self._offsets = np.append(self._offsets, np.int64(offset_ns))
        boot_ns = self._boot()
        boot_offset_ns = self._wall() - boot_ns
        if boot_offset_ns > self._boot_offsets[-1]:  # after a suspend alone it is the same
            self._boot_starts.append(boot_ns)
            self._boot_offsets.append(boot_offset_ns)
