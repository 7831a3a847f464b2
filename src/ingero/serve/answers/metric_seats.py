"""A bounded number of series, each counted from when it got its seat.

Whoever finds no seat is counted with `other`. A seat whose holder did nothing for a
while is free again; what was counted in it is not moved, so nothing counted ever
shrinks or is counted twice: a series ends, and a later one begins at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Seats(Generic[K, V]):
    """At most `limit` keys at a time with a value of their own."""

    def __init__(self, limit: int, keep_ns: int, make: Callable[[K, int], V]) -> None:
        self._limit, self._keep_ns, self._make = limit, keep_ns, make
        self._held: dict[K, tuple[V, int]] = {}  # the one that did something last stands last

    def take(self, key: K, now_ns: int) -> V | None:
        """The key's own value; None where no seat is free."""
        found = self._held.pop(key, None)
        if found is None and len(self._held) >= self._limit:
            self.leave_idle(now_ns)
            if len(self._held) >= self._limit:
                return None
        value = found[0] if found else self._make(key, now_ns)
        self._held[key] = value, now_ns
        return value

    def leave(self, key: K) -> None:
        self._held.pop(key, None)

    def leave_idle(self, now_ns: int) -> None:
        """Nobody who did nothing for long stays."""
        while self._held:
            key, (_, last_ns) = next(iter(self._held.items()))
            if now_ns - last_ns <= self._keep_ns:
                return
            del self._held[key]

    def get(self, key: K) -> V | None:
        found = self._held.get(key)
        return found[0] if found else None

    def __iter__(self) -> Iterator[V]:
        return (value for value, _ in self._held.values())

    def __len__(self) -> int:
        return len(self._held)
