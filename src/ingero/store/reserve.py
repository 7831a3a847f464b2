"""Disk space kept for the end of a recording.

A disk that is full when a trace ends would take the last word too: what was lost, and what was found.
So a nameless file beside the database holds some space until then. The kernel frees it with the
process, however that ends; where there is little room to begin with, none is held.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

BYTES = 1 << 20  # the last transaction writes some twenty pages, twice
LEAST_FREE = 3 * BYTES


class Reserve:
    """Held while the recording runs, and let go once."""

    def __init__(self, folder: Path, size: int = BYTES) -> None:
        self._handle = _held(folder, size)

    def release(self) -> bool:
        """Whether there is now more room than before."""
        handle, self._handle = self._handle, None
        if handle is None:
            return False
        with contextlib.suppress(OSError):
            os.close(handle)
        return True


def _held(folder: Path, size: int) -> int | None:
    """None where there is little room, or no nameless files are made."""
    handle = None
    try:
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < LEAST_FREE:
            return None
        handle = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(handle, 0, size)
    except OSError:
        if handle is not None:
            os.close(handle)
        return None
    return handle
