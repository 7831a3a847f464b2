"""Names for addresses, asked of the reader process (discover/native_symbols.py has them)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.model.stack import NativeFrame

AT_ONCE = 1024  # names


class Symbols:
    """What it hears of processes is passed on with the next question."""

    def __init__(self, readers: Asking) -> None:
        self._readers = readers
        self._mapped: set[int] = set()
        self._gone: set[int] = set()

    def mapped(self, pids: Iterable[int]) -> None:
        """Processes that mapped something of any kind: unknown addresses may be in it."""
        self._mapped.update(pids)

    def forget(self, pids: Iterable[int]) -> None:
        self._gone.update(pids)

    def look(self, pids: Iterable[int]) -> None:
        """Processes that mapped something or became another program."""
        self._tell()
        for pid in pids:
            try:
                self._readers.ask(Reading.look_at_code, pid)
            except (UnreadError, ProcessLookupError):
                continue

    def frames_at(
        self, pid: int, addresses: NDArray[np.uint64], start_ns: int = 0
    ) -> Sequence[NativeFrame | None]:
        """A frame for each address, None where there is no executable memory or nobody could read it."""
        self._tell()
        try:
            at = addresses.astype("<u8").tobytes()
            frames = self._readers.ask(Reading.frames_at, pid, at, int(start_ns))
        except (UnreadError, ProcessLookupError):
            frames = []
        return frames if len(frames) == len(addresses) else [None] * len(addresses)

    def handle_names(self, pid: int, handles: Sequence[int]) -> dict[int, bytes]:
        """What a driver calls the kernels behind its handles."""
        try:
            names = self._readers.ask(Reading.handle_names, pid, list(handles))
        except (UnreadError, ProcessLookupError):
            return {}
        return {handle: names[handle] for handle in handles if handle in names}

    def readable(self, pid: int, names: Sequence[bytes]) -> list[str]:
        """Names of a process's kernels; C++ names as people write them, where a reader could."""
        texts = [name.decode("utf-8", "replace") for name in names]
        mangled = [at for at, name in enumerate(names) if name.startswith(b"_Z")]
        for start in range(0, len(mangled), AT_ONCE):
            rows = mangled[start : start + AT_ONCE]
            try:
                made = self._readers.ask(Reading.readable, pid, [names[at] for at in rows])
            except UnreadError:
                break
            for at, text in zip(rows, made, strict=False):
                texts[at] = text
        return texts

    def _tell(self) -> None:
        if self._mapped or self._gone:
            mapped, gone = sorted(self._mapped), sorted(self._gone)
            self._mapped, self._gone = set(), set()
            try:
                self._readers.ask(Reading.news, mapped, gone)
            except UnreadError:  # its successor knows nothing that could be out of date
                return
