"""Output that never holds up who writes it: a thread of its own waits for the reader.

A pipe nobody reads, a terminal stopped with Ctrl-S: writing there blocks, and meanwhile the
kernel's ring would overrun. What waits is bounded by its writer, who asks `behind` first
and counts what it leaves out. Bytes go to the descriptor itself: a buffer of Python's that is
locked by a blocked thread would crash the interpreter at its end.
"""

from __future__ import annotations

import io
import os
import select
import threading
from collections import deque
from typing import Any, TextIO, cast

MOST_BYTES = 16 << 20  # some 50 thousand records; a window more may come on top
PATIENCE_S = 2.0  # at the end, for a reader that takes nothing


class Outlet:
    """A text file to write to."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._handle = file, file.fileno()
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._failure: OSError | None = None
        self._thread: threading.Thread | None = None

    @property
    def encoding(self) -> str:
        return self._file.encoding

    def isatty(self) -> bool:
        return self._file.isatty()

    def fileno(self) -> int:
        return self._handle

    @property
    def behind(self) -> bool:
        """More waits than is reasonable: better write nothing now."""
        return self._waiting_bytes > MOST_BYTES

    def write(self, text: str) -> int:
        """Returns at once; why an earlier text could not be written is raised here."""
        data = text.encode(self.encoding or "utf-8", "replace")
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self._waiting.append(memoryview(data))
            self._waiting_bytes += len(data)
            if self._thread is None:
                self._file.flush()  # what was printed before comes first
                self._thread = threading.Thread(target=self._work, name="output", daemon=True)
                self._thread.start()
        return len(text)

    def flush(self) -> None:
        """Nothing is held back; raises as `write` does."""
        if self._failure is not None:
            raise self._failure

    def settle(self) -> int:
        """Wait while the reader takes something; how many lines it did not take."""
        with self._changed:
            left = -1
            while self._waiting and self._failure is None and left != self._waiting_bytes:
                left = self._waiting_bytes
                self._changed.wait(PATIENCE_S)
            return sum(bytes(data).count(b"\n") for data in self._waiting)

    def _work(self) -> None:
        """Until nothing waits; the next text has a thread of its own."""
        while data := self._next():
            try:
                taken = self._take(data)
            except OSError as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._waiting_bytes -= taken
                self._waiting[0] = data[taken:]
                self._changed.notify_all()

    def _next(self) -> memoryview | None:
        with self._changed:
            while self._waiting:
                if self._waiting[0]:
                    return self._waiting[0]
                self._waiting.popleft()
            self._thread = None
            self._changed.notify_all()
            return None

    def _take(self, data: memoryview) -> int:
        try:
            return os.write(self._handle, data[: 1 << 16])
        except BlockingIOError:  # whoever shares the pipe made it so
            select.select([], [self._handle], [])
            return 0


def outlet(file: TextIO) -> TextIO:
    """What to write to instead; a file in memory blocks nobody."""
    try:
        file.fileno()
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return file
    return cast(TextIO, Outlet(file))


def is_behind(file: Any) -> bool:
    return isinstance(file, Outlet) and file.behind


def settled(file: Any) -> int:
    """Whatever could be written is; how many lines could not."""
    return file.settle() if isinstance(file, Outlet) else 0
