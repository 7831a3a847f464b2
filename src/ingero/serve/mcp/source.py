"""The recording that tools are asked about, and what is kept between two questions.

An investigation asks for the same diagnosis several times, and many assistants may ask
at once: it is made once for as long as the database does not change.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ingero.config import Config
from ingero.errors import StoreError
from ingero.model.finding import Finding
from ingero.model.fleet import FleetStatus, NodeHistory
from ingero.model.live import QuietSurface
from ingero.model.report import Bound, Report
from ingero.serve.answers.asked_nodes import Fleet
from ingero.serve.answers.checks import CheckAnswer, get_checks
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.kept import Kept
from ingero.serve.answers.places import database, stamp_of
from ingero.serve.answers.query import Range
from ingero.serve.answers.whose import EVERYBODY, Whose

KEPT = 8
CHECK_S = 30.0  # looking at the machine takes a while and changes little


class FleetSource(Protocol):
    """Who is told by many nodes how they do."""

    def status(self, filters: Mapping[str, Any]) -> FleetStatus: ...
    def history(self, cluster: str, node: str, hours: float) -> NodeHistory: ...


class AssistantSource:
    """One database, and the machine it is on."""

    def __init__(
        self,
        db: Path | None,
        config: Config,
        fleet: Callable[[], Fleet | None] = lambda: None,
        collector: Callable[[], FleetSource | None] = lambda: None,
    ) -> None:
        """`fleet`: whom to ask about many nodes, `collector`: who knows them; found when somebody asks."""
        self.config = config
        self.fleet, self.collector = fleet, collector
        self._named = db
        self._kept = Kept(KEPT)

    @property
    def db(self) -> Path:
        return database(self._named)

    def report(self, wanted: Range, pid: int | None, whose: Whose = EVERYBODY) -> Report:
        """The diagnosis; the error it ends in is not kept."""
        key = ("report", wanted, pid, whose, stamp_of(self.db))
        return self._kept.once(key, lambda: get_report(self.db, wanted, pid, whose=whose))

    def checks(self) -> CheckAnswer:
        key = ("checks", int(time.monotonic() / CHECK_S))
        return self._kept.once(key, lambda: get_checks(self.db))


# `run_demo`: a made-up scenario recorded into a database of its own, which is gone afterwards.


SPEED = 10_000.0  # the story's seconds in a second: nobody watches
SEED = 7


class _Later:
    """No diagnosis meanwhile: the recording is asked when it is complete."""

    findings: tuple[Finding, ...] = ()
    past: tuple[Finding, ...] = ()
    bound: tuple[Bound, ...] = ()
    looked_ns: int | None = None

    def __init__(self) -> None:
        self.steps: dict[int, str] = {}

    def consider(self, now_ns: int) -> None: ...

    def conclude(self) -> None: ...


def play(scenario: str) -> tuple[str, Report]:
    """What it shows, and the diagnosis."""
    from ingero.scenarios import demo
    from ingero.scenarios.catalogue import BY_NAME

    chosen = BY_NAME[scenario]
    with tempfile.TemporaryDirectory(prefix="ingero-demo-") as folder:
        db = Path(folder) / "demo.db"
        if demo.run(demo.Played(chosen, db, SEED, SPEED), QuietSurface(), lambda _: _Later()):
            raise StoreError(f"cannot record the demo in {folder}", hint="Is there space left?")
        return chosen.summary, get_report(db, Range())
