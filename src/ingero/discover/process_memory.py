"""Reading another process's memory, within bounds.

The process goes on running and its memory may say anything: what is read may be gone a
moment later, and a pointer may lead anywhere. Each reader has a number of reads and of
bytes it may spend, so that no structure, however made, keeps the agent busy.
"""

from __future__ import annotations

import errno
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ingero.native import _shim

MAX_READS = 60_000  # some 2 us each
MAX_BYTES = 64 << 20
USER_END = 1 << 47
PAGE_BYTES = 4096
Words = NDArray[np.uint64]


class NotThereError(LookupError):
    """No memory is mapped at an address, or less than asked for."""


class TooMuchError(Exception):
    """The reader has spent what it may."""


class ProcessMemory:
    """Raises ProcessLookupError or PermissionError when the process is gone or may not be read."""

    def __init__(self, pid: int, reads: int = MAX_READS) -> None:
        self.reads_left, self.bytes_left = reads, MAX_BYTES
        self._pid = int(pid)

    def __enter__(self) -> ProcessMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held of the process."""

    def read(self, address: int, size: int) -> bytes:
        """Exactly these bytes."""
        data = self.read_up_to(address, size)
        if len(data) != size:
            raise NotThereError(f"no {size} bytes at {address:#x}")
        return data

    def _spend(self, address: int, size: int) -> None:
        """Of what may be read of a process, which chooses what it points at."""
        if not PAGE_BYTES <= address < USER_END or not 0 < size <= USER_END - address:
            raise NotThereError(f"no address of a process: {address:#x}")
        self.reads_left -= 1
        self.bytes_left -= size
        if self.reads_left < 0 or self.bytes_left < 0:
            raise TooMuchError

    def read_up_to(self, address: int, size: int) -> bytes:
        """As many of these bytes as are mapped, at least one."""
        self._spend(address, size)
        try:
            data = _shim.read_memory(self._pid, address, size)
        except OSError as error:
            if error.errno in (errno.EIO, errno.EFAULT):
                raise NotThereError(f"nothing at {address:#x}") from error
            raise
        if not data:  # its memory is given back
            raise ProcessLookupError
        return data

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little")

    def signed32(self, address: int) -> int:
        return int.from_bytes(self.read(address, 4), "little", signed=True)

    def byte(self, address: int) -> int:
        return self.read(address, 1)[0]

    def words_up_to(self, address: int, count: int) -> Words:
        """As many of these words as are mapped, at least one."""
        data = self.read_up_to(address, count * 8)
        if len(data) < 8:  # the last few bytes of a mapping
            raise NotThereError(f"no word at {address:#x}")
        return np.frombuffer(data, "<u8", len(data) // 8)

    def string(self, address: int, limit_bytes: int = 64) -> str:
        """A short C string; what does not end in time is none."""
        data = self.read_up_to(address, limit_bytes)
        text, end, _ = data.partition(b"\0")
        if not end:
            raise NotThereError(f"no string at {address:#x}")
        return text.decode("ascii", "replace")


def pointers(words: Words) -> NDArray[np.int64]:
    """Which of the words could be addresses of objects."""
    aligned = (words % np.uint64(8)) == 0
    return np.flatnonzero(aligned & (words >= np.uint64(PAGE_BYTES)) & (words < np.uint64(USER_END)))
