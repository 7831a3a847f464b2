"""Batches nobody has taken yet, on disk: one file each, oldest first, no more than a bound.

A file appears whole or not at all. What does not fit pushes the oldest out and is counted; what
was left by an agent that ended is sent by the next one, under the name it had.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ingero.errors import StoreError

BYTES, FILES = 64 << 20, 20_000
_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})-(\d{12})\.(metrics|logs)")


class Batch(NamedTuple):
    """One request. Its name is the same however often it is sent."""

    at_ns: int
    run: str
    number: int
    signal: str
    body: bytes

    @property
    def file(self) -> str:
        return f"{self.at_ns:020d}-{self.run}-{self.number:012d}.{self.signal}"


class Spool:
    """A folder of them; one process at a time."""

    def __init__(self, folder: Path, most_bytes: int = BYTES, most_files: int = FILES) -> None:
        self.folder, self._most_bytes, self._most_files = folder, most_bytes, most_files
        self.dropped = 0  # batches
        self._files: deque[tuple[str, int]] = deque()
        self._bytes = 0
        self._open()

    def _open(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.folder.lstat()
            if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o022:
                raise StoreError(
                    f"{self.folder} can be changed by others, so nothing is kept there",
                    hint=f"It must be a folder of your own: chmod 700 {self.folder}",
                )
            found = sorted(each.name for each in os.scandir(self.folder))
        except OSError as error:
            raise StoreError(
                f"cannot keep batches in {self.folder}: {error.strerror}",
                hint="Name another folder: collector.spool in ingero.yaml.",
            ) from error
        for name in found:
            if name.startswith("."):  # half of one
                with suppress(OSError):
                    (self.folder / name).unlink()
            elif _NAME.fullmatch(name):
                self._note(name, (self.folder / name).lstat().st_size)
        self._bound()

    def __len__(self) -> int:
        return len(self._files)

    @property
    def bytes(self) -> int:
        return self._bytes

    def put(self, batch: Batch) -> None:
        """Keep one; a disk that does not take it loses it, counted."""
        unfinished = self.folder / f".{batch.file}"
        try:
            unfinished.write_bytes(batch.body)
            unfinished.replace(self.folder / batch.file)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
            self.dropped += 1
            return
        self._note(batch.file, len(batch.body))
        self._bound()

    def oldest(self) -> Batch | None:
        """The one to send next; files that went away or are not ours any more are skipped and counted."""
        while self._files:
            name, size = self._files[0]
            match = _NAME.fullmatch(name)
            try:
                body = (self.folder / name).read_bytes()
            except OSError:
                body = b""
            if match and len(body) == size and body:
                return Batch(int(match[1]), match[2], int(match[3]), match[4], body)
            self._pop()
            self.dropped += 1
        return None

    def done(self, batch: Batch) -> None:
        """It was taken, or will never be."""
        if self._files and self._files[0][0] == batch.file:
            self._pop()

    def _note(self, name: str, size: int) -> None:
        self._files.append((name, size))
        self._bytes += size

    def _pop(self) -> None:
        name, size = self._files.popleft()
        self._bytes -= size
        with suppress(OSError):
            (self.folder / name).unlink()

    def _bound(self) -> None:
        while self._files and (self._bytes > self._most_bytes or len(self._files) > self._most_files):
            self._pop()
            self.dropped += 1
