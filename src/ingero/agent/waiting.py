"""What the loop does a part of at a time: it has other duties, and the rest waits.

Processes that mapped a library, to be looked at; and new targets, whose children have to be looked for
because they may have been born before the kernel side was told of their parents.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from ingero.discover import processes

MAX_EXAMINED, EXAMINING_NS = 64, 250_000_000  # at a time
CHILDREN_SHARE = 10  # one ns in so many may go into looking through all processes for children


class Waiting:
    """Each process once, in the order they came."""

    def __init__(self) -> None:
        self._pids: dict[int, None] = {}

    def some(self, more: Iterable[int]) -> Iterator[int]:
        """As many as there is time for, with these behind those that wait already."""
        self._pids.update(dict.fromkeys(more))
        until_ns = time.monotonic_ns() + EXAMINING_NS
        for pid in list(self._pids)[:MAX_EXAMINED]:
            if time.monotonic_ns() >= until_ns:
                return
            del self._pids[pid]
            yield pid


class Children:
    """Of new targets: found by one look at all processes, and not too often."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._not_before_ns = 0

    def born_to(self, pid: int) -> None:
        self._parents.append(pid)

    def find(self) -> list[int]:
        began_ns = time.monotonic_ns()
        if not self._parents or began_ns < self._not_before_ns:
            return []
        found = processes.descendants(*self._parents)
        self._parents = []
        now_ns = time.monotonic_ns()
        self._not_before_ns = now_ns + CHILDREN_SHARE * (now_ns - began_ns)
        return found
