"""News of executable mappings, from the kernel; where it refuses to tell, a look at everybody now and then.

Debian's kernels refuse perf events to whoever lacks CAP_SYS_ADMIN while perf_event_paranoid is above 2,
as they set it: root has it, a unit or a container with the few capabilities that tracing needs does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ingero.native import _shim

EVERY_S = 5.0  # a look reads the maps of every process
REFUSED = (
    "the kernel does not tell of new libraries (kernel.perf_event_paranoid above 2, no CAP_SYS_ADMIN): "
    f"those that running processes load are found within {EVERY_S:.0f} s"
)
Row = tuple[int, int, int, int, int, int, int, str]


class Untold:
    """Has no news, and says again and again that some were lost."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._began = now, now()

    def fds(self) -> list[int]:
        return []

    def read(self) -> list[Row]:
        return []

    def lost(self) -> int:
        return int((self._now() - self._began) // EVERY_S)

    def close(self) -> None:
        pass


def watch(cores: list[int], warnings: dict[str, str]) -> _shim.MappingWatch | Untold:
    try:
        return _shim.MappingWatch(cores)
    except PermissionError:
        warnings["mappings"] = REFUSED
        return Untold()
