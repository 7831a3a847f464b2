"""Rounds from a recording that is being written, or that has ended: then its last one."""

from __future__ import annotations

import threading
from pathlib import Path

from ingero.model.fleet import ROUND_S
from ingero.serve.answers.recorded_metrics import recorded_rounds
from ingero.serve.metrics.fleet import FleetSender

REACH_NS = 150_000_000_000  # as far as a trace looks back for its live diagnosis


class Recorded:
    """Tells what is new in a database."""

    def __init__(self, sender: FleetSender, db: Path | None, round_s: float = ROUND_S) -> None:
        self._sender, self._db, self._round_s = sender, db, round_s
        self._told_ns: dict[str, int] = {}

    def run(self, stop: threading.Event, once: bool) -> None:
        """Until told to stop."""
        self._sender.outbox.start()
        try:
            self.tell()
            while not once and not stop.wait(self._round_s):
                self.tell()
        finally:
            self._sender.close()

    def tell(self) -> int:
        """One round of each node that has something new; how many were."""
        told = 0
        for snapshot, report in recorded_rounds(self._db, self._told_ns, int(self._round_s * 1e9), REACH_NS):
            self._told_ns[snapshot.node] = snapshot.at_ns
            commands = {each.pid: each.cmdline or "" for each in report.processes}
            self._sender.look(snapshot.findings)
            self._sender.tell(snapshot, report.bound, commands, of_round=True)
            told += 1
        return told
