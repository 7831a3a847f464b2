"""The recording that tools are asked about, and what is kept between two questions.

An investigation asks for the same diagnosis several times, and many assistants may ask
at once: it is made once for as long as the database does not change.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ingero.config import Config
from ingero.model.report import Report
from ingero.serve.answers.checks import CheckAnswer, get_checks
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.places import database, stamp_of
from ingero.serve.answers.query import Range

T = TypeVar("T")
KEPT = 8
CHECK_S = 30.0  # looking at the machine takes a while and changes little


class Source:
    """One database, and the machine it is on."""

    def __init__(self, db: Path | None, config: Config) -> None:
        self.config = config
        self._named = db
        self._kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._busy: dict[tuple[Any, ...], threading.Lock] = {}

    @property
    def db(self) -> Path:
        return database(self._named)

    def report(self, wanted: Range, pid: int | None) -> Report:
        """The diagnosis; the error it ends in is not kept."""
        key = ("report", wanted, pid, stamp_of(self.db))
        return self._once(key, lambda: get_report(self.db, wanted, pid))

    def checks(self) -> CheckAnswer:
        key = ("checks", int(time.monotonic() / CHECK_S))
        return self._once(key, lambda: get_checks(self.db))

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
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
                    while len(self._kept) > KEPT:
                        self._kept.popitem(last=False)
                return made
            finally:
                with self._lock:
                    self._busy.pop(key, None)
