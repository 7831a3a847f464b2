"""Where a graph's features lie, and where a run writes its state."""

from __future__ import annotations

import mmap
import os
import queue
import threading
from pathlib import Path

PAGE = 4096


class MappedFeatures:
    """A file in memory; the kernel reads what is touched."""

    def __init__(self, path: str) -> None:
        with Path(path).open("rb") as file:
            self._pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._pages.madvise(mmap.MADV_RANDOM)
        self._count = len(self._pages) // PAGE
        self._at = 1

    def gather(self, nodes: int, spread: int) -> int:
        """Features of some nodes; `spread`: how much of the file they lie in."""
        total, within = 0, max(1, self._count // spread)
        for _ in range(nodes):
            self._at = (self._at * 1103515245 + 12345) & 0x7FFFFFFF
            total += self._pages[(self._at % within) * PAGE]
        return total


class ReadFeatures:
    """The same by read()."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._bytes = os.fstat(self._file).st_size
        self._at = 0

    def sweep(self, megabytes: int) -> int:
        total = 0
        for _ in range(megabytes):
            total += len(os.pread(self._file, 1 << 20, self._at))
            self._at = (self._at + (1 << 20)) % max(1 << 20, self._bytes - (1 << 20))
        return total


class Saver:
    """Writes the state of a run; in a thread of its own when asked to."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._state = os.urandom(1 << 20)
        self._asked: queue.Queue[int] = queue.Queue(maxsize=1)
        threading.Thread(target=self._serve, daemon=True).start()

    def save(self, megabytes: int) -> None:
        new = self._folder / "state.new"
        with new.open("wb") as file:
            for _ in range(megabytes):
                file.write(self._state)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._folder / "state.bin")

    def save_later(self, megabytes: int) -> None:
        try:
            self._asked.put_nowait(megabytes)
        except queue.Full:
            return  # one is under way

    def _serve(self) -> None:
        while True:
            self.save(self._asked.get())


class Journal:
    """A line for each step."""

    def __init__(self, folder: str, name: str = "journal.jsonl") -> None:
        self._file = (Path(folder) / name).open("a")

    def add(self, line: str, durable: bool) -> None:
        self._file.write(line + "\n")
        self._file.flush()
        if durable:
            os.fsync(self._file.fileno())
