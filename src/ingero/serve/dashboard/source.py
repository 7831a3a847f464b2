"""The database that is asked, and what is kept between two questions: many browsers may look at once."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from ingero.config_tenants import Cost
from ingero.errors import IngeroError
from ingero.model.report import Report
from ingero.serve.answers.asked_nodes import Fleet
from ingero.serve.answers.kept import Kept, Key
from ingero.serve.answers.places import database, stamp_of
from ingero.serve.answers.query import Range
from ingero.serve.answers.recordings import get_nodes
from ingero.serve.dashboard.diagnosing import Diagnosing

REPORTS = 8
ANSWERS = 64  # as bytes; a large one has a megabyte


class Source:
    """One database."""

    def __init__(
        self, db: Path | None, cost: Cost | None = None, fleet: Callable[[], Fleet | None] = lambda: None
    ) -> None:
        """`cost`: what GPUs cost, as configured; `fleet`: nodes asked on behalf of whoever asks here."""
        self._named, self.cost, self.fleet = db, cost or Cost(), fleet
        self._reports = Kept(REPORTS)
        self.diagnosing = Diagnosing()
        self.instance = secrets.token_hex(8)
        self._nodes = Kept(1)
        self.answers = Kept(ANSWERS)

    @property
    def db(self) -> Path:
        return database(self._named)

    @property
    def stamp(self) -> Key:
        """Changes whenever something was written."""
        return stamp_of(self.db)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes in it; none where it cannot be read."""
        try:
            return self._nodes.once(("nodes", self.stamp), lambda: get_nodes(self.db))
        except IngeroError:
            return ()

    def report(self, wanted: Range, node: str | None, pid: int | None) -> Report:
        """The diagnosis, which several pages show parts of."""
        key = (wanted, node, pid, self.stamp)
        return self._reports.once(key, lambda: self.diagnosing.report(self.db, wanted, pid, node))
