"""The Python interpreters of the traced processes, looked for until they are found.

A process may load Python after it was taken in, or become another program: one without
Python is looked at again, ever less often; one that executed something at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ingero.discover.gil import Gil, GilFinder
from ingero.discover.libraries import Library
from ingero.model.window import NotWatched

ANEW_NS = 1  # at once
FIRST_AGAIN_NS = 1_000_000_000
LAST_AGAIN_NS = 60_000_000_000
MAX_LOOKS = 32  # per window: reading the mappings of a large process takes milliseconds


@dataclass(slots=True)
class Look:
    """What a process had when it was last looked at."""

    gil: Gil | None
    at_ns: int
    again_ns: int  # how long after that to look again; 0: never


class Pythons:
    """Which traced process has an interpreter lock, and where."""

    def __init__(self) -> None:
        self._finder = GilFinder()
        self._looks: dict[int, Look] = {}
        self._news: list[NotWatched] = []
        self._found: list[tuple[int, Library]] = []

    def files(self) -> set[tuple[int, int]]:
        """Interpreters in use."""
        gils = (look.gil for look in self._looks.values())
        return {gil.library.file for gil in gils if gil and gil.library}

    def locks(self) -> dict[int, tuple[int, int]]:
        """By process; an empty range where no Python runs. Left out: where it cannot be told."""
        return {
            pid: (look.gil.start, look.gil.end) if look.gil else (0, 0)
            for pid, look in self._looks.items()
            if look.gil is None or not look.gil.why
        }

    def look(self, live: Iterable[int], executed: Mapping[int, int], now_ns: int) -> None:
        """Look at new processes, and again at those that may have changed; executed: when, by process."""
        for pid, at_ns in executed.items():
            look = self._looks.get(pid)
            if look and look.at_ns < at_ns:
                look.again_ns = ANEW_NS
        due = [pid for pid in live if self._is_due(pid, now_ns)]
        for pid in due[:MAX_LOOKS]:
            with suppress(ProcessLookupError):  # it has ended: what was seen of it before is all there is
                self._look(pid, now_ns)

    def _look(self, pid: int, now_ns: int) -> None:
        gil, before = self._finder.gil_of(pid), self._looks.get(pid)
        waited_ns = before.again_ns if before else ANEW_NS
        again_ns = FIRST_AGAIN_NS if waited_ns == ANEW_NS else min(2 * waited_ns, LAST_AGAIN_NS)
        self._looks[pid] = Look(gil, now_ns, 0 if gil else again_ns)
        if gil and gil.library:
            self._found.append((pid, gil.library))
        if gil and gil.why:
            self.tell(NotWatched(pid, "gil", gil.why))

    def _is_due(self, pid: int, now_ns: int) -> bool:
        look = self._looks.get(pid)
        return look is None or (look.again_ns > 0 and now_ns - look.at_ns >= look.again_ns)

    def forget(self, pids: Iterable[int]) -> None:
        """Processes that have ended."""
        for pid in pids:
            self._looks.pop(pid, None)

    def take_found(self) -> list[tuple[int, Library]]:
        """Processes seen to run Python since the last call, with the interpreter's file."""
        found, self._found = self._found, []
        return found

    def tell(self, news: NotWatched) -> None:
        self._news.append(news)

    def take_news(self) -> list[NotWatched]:
        news, self._news = self._news, []
        return news
