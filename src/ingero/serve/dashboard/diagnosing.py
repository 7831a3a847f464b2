"""The diagnosis in a process of its own: it computes for seconds, and nothing beside it would be quick.

The process is started with the server, asked through a pipe, and ends when the pipe
does. Where there is none, or it died twice, the diagnosis is made here.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ingero.model.report import Report
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range

log = logging.getLogger(__name__)
NICE = 5  # whoever looks at the timeline meanwhile goes first
TRIES = 2


class Diagnosing:
    """One diagnosis after the other."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._pipe: Connection | None = None

    def start(self) -> None:
        """So that the first question need not wait for it."""
        with self._turn:
            self._connected()

    def report(self, db: Path, wanted: Range, pid: int | None, node: str | None) -> Report:
        asked = (db, wanted, pid, None, node)
        with self._turn:
            for _ in range(TRIES):
                try:
                    pipe = self._connected()
                    pipe.send(asked)
                    made, answer = pipe.recv()
                    break
                except (EOFError, OSError) as error:
                    log.warning("the process that diagnoses is gone: %s", error or "killed")
                    self._pipe = None
            else:
                return get_report(*asked)
        if not made:
            raise answer
        report: Report = answer
        return report

    def _connected(self) -> Connection:
        if self._pipe is None:
            spawn = multiprocessing.get_context(
                "spawn"
            )  # a copy of this process would have its threads' locks
            ours, theirs = spawn.Pipe()
            spawn.Process(target=_work, args=(theirs,), daemon=True).start()
            theirs.close()
            self._pipe = ours
        return self._pipe


def _work(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both; the server decides
    os.nice(NICE)
    while True:
        try:
            asked: tuple[Any, ...] = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[bool, Any] = (True, get_report(*asked))
        except Exception as error:
            answer = (False, error)
        pipe.send(answer)
