"""The database that is asked, and what is kept between two questions: many browsers may look at once."""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from ingero import isolated
from ingero.config_tenants import Cost
from ingero.errors import IngeroError
from ingero.model.report import Report
from ingero.serve.answers.asked_nodes import Fleet
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.kept import Kept, Key
from ingero.serve.answers.labels import NO_LABELS
from ingero.serve.answers.places import database, stamp_of
from ingero.serve.answers.query import Range
from ingero.serve.answers.recordings import get_nodes
from ingero.serve.answers.whose import EVERYBODY, Whose

REPORTS = 8
ANSWERS = 64  # as bytes; a large one has a megabyte


class DashboardSource:
    """One database."""

    def __init__(
        self,
        db: Path | None,
        cost: Cost | None = None,
        fleet: Callable[[], Fleet | None] = lambda: None,
        fleet_page: str = "",
    ) -> None:
        """`cost`: what GPUs cost, as configured; `fleet`: nodes asked on behalf of whoever asks here;
        `fleet_page`: where the collector shows all of them."""
        self._named, self.cost, self.fleet, self.fleet_page = db, cost or Cost(), fleet, fleet_page
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

    def report(self, wanted: Range, node: str | None, pid: int | None, whose: Whose = EVERYBODY) -> Report:
        """The diagnosis, which several pages show parts of."""
        key = (wanted, node, pid, whose, self.stamp)
        return self._reports.once(key, lambda: self.diagnosing.report(self.db, wanted, pid, node, whose))


# The diagnosis in a process of its own: it computes for seconds, and nothing beside it would be quick.
#
# The process is started with the server, asked through a pipe, and ends when the pipe
# does. Where there is none, or it died twice, the diagnosis is made here.


log = logging.getLogger(__name__)
NICE = 5  # whoever looks at the timeline meanwhile goes first
TRIES = 2


class Diagnosing:
    """One diagnosis after the other."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._pipe: Connection | None = None
        self._process: subprocess.Popen[Any] | None = None
        self._end: Callable[[], object] = lambda: None

    def start(self) -> None:
        """So that the first question need not wait for it."""
        with self._turn:
            self._connected()

    def report(
        self, db: Path, wanted: Range, pid: int | None, node: str | None, whose: Whose = EVERYBODY
    ) -> Report:
        asked = (db.absolute(), wanted, pid, None, node, NO_LABELS, whose)
        with self._turn:
            for _ in range(TRIES):
                try:
                    pipe = self._connected()
                    pipe.send(asked)
                    made, answer = pipe.recv()
                    break
                except (EOFError, OSError) as error:
                    log.warning("the process that diagnoses is gone: %s", error or "killed")
                    self._end()
                    self._pipe = None
            else:
                return get_report(*asked)
        if not made:
            raise answer
        report: Report = answer
        return report

    def _connected(self) -> Connection:
        if self._pipe is None:
            self._pipe, theirs = Pipe()
            with theirs:  # a fresh interpreter: a copy of this process would have its threads' locks
                self._process = isolated.start(
                    __name__,
                    str(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for the server
                )
            self._end = weakref.finalize(self, _end, self._pipe, self._process)
        return self._pipe


def _end(pipe: Connection, process: subprocess.Popen[Any]) -> None:
    """When it no longer answers, and when nobody can ask it any more."""
    pipe.close()
    process.kill()
    process.wait()


def _work(pipe: Connection) -> None:
    os.nice(NICE)
    while True:
        try:
            asked: tuple[Any, ...] = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[bool, Any] = (True, get_report(*asked))
        except Exception as error:  # raised by whoever asked, in its own process
            answer = (False, error)
        try:
            pipe.send(answer)
        except OSError:  # the server ended meanwhile
            return


if __name__ == "__main__":
    _work(Connection(int(sys.argv[1])))
