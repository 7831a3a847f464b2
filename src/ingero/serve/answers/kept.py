"""Answers kept for as long as nothing changes, each made once however many ask for it at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Key = tuple[Any, ...]


class Kept:
    """The `most` answers asked for last; an error that making one ends in is not kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Any] = OrderedDict()
        self._lock = threading.Lock()
        self._busy: dict[Key, threading.Lock] = {}

    def once(self, key: Key, make: Callable[[], T]) -> T:
        """The answer under this key, made where there is none."""
        with self._lock:
            turn = self._busy.setdefault(key, threading.Lock())
        with turn:  # who asks for the same meanwhile waits for it
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    found: T = self._kept[key]
                    return found
            try:
                made = make()
                with self._lock:
                    self._kept[key] = made
                    while len(self._kept) > self._most:
                        self._kept.popitem(last=False)
                return made
            finally:
                with self._lock:
                    self._busy.pop(key, None)
