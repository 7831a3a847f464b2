"""The recording that tools are asked about, and what is kept between two questions.

An investigation asks for the same diagnosis several times, and many assistants may ask
at once: it is made once for as long as the database does not change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ingero.config import Config
from ingero.model.fleet import FleetStatus, NodeHistory
from ingero.model.report import Report
from ingero.serve.answers.asked_nodes import Fleet
from ingero.serve.answers.checks import CheckAnswer, get_checks
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.kept import Kept
from ingero.serve.answers.places import database, stamp_of
from ingero.serve.answers.query import Range

KEPT = 8
CHECK_S = 30.0  # looking at the machine takes a while and changes little


class Collector(Protocol):
    """Who is told by many nodes how they do."""

    def status(self, filters: Mapping[str, Any]) -> FleetStatus: ...
    def history(self, cluster: str, node: str, hours: float) -> NodeHistory: ...


class Source:
    """One database, and the machine it is on."""

    def __init__(
        self,
        db: Path | None,
        config: Config,
        fleet: Callable[[], Fleet | None] = lambda: None,
        collector: Callable[[], Collector | None] = lambda: None,
    ) -> None:
        """`fleet`: whom to ask about many nodes, `collector`: who knows them; found when somebody asks."""
        self.config = config
        self.fleet, self.collector = fleet, collector
        self._named = db
        self._kept = Kept(KEPT)

    @property
    def db(self) -> Path:
        return database(self._named)

    def report(self, wanted: Range, pid: int | None) -> Report:
        """The diagnosis; the error it ends in is not kept."""
        key = ("report", wanted, pid, stamp_of(self.db))
        return self._kept.once(key, lambda: get_report(self.db, wanted, pid))

    def checks(self) -> CheckAnswer:
        key = ("checks", int(time.monotonic() / CHECK_S))
        return self._kept.once(key, lambda: get_checks(self.db))
