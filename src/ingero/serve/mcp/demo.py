"""`run_demo`: a made-up scenario recorded into a database of its own, which is gone afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ingero.errors import StoreError
from ingero.model.finding import Finding
from ingero.model.live import QuietSurface
from ingero.model.report import Bound, Report
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range

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
