"""Looks at the whole fleet every few seconds: who straggles, what each node is told, and what is shown.

Everything comes from the store, so collectors beside each other see the same. A look that fails is
told with the last good one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from ingero.errors import StoreError
from ingero.fleet.collector import peers, questions, status
from ingero.fleet.collector.tables import Rows
from ingero.model.fleet import ROUND_S, Advice, NodeStatus, Straggler

log = logging.getLogger(__name__)
LOOK_S = ROUND_S / 2


class Kept(questions.Asked, Protocol):
    def insert(self, rows: Rows) -> None: ...


class Watch:
    """The last look; any thread may read it."""

    def __init__(self, store: Kept, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._store, self._now_ns = store, now_ns
        self._hysteresis = peers.Hysteresis()
        self._known: dict[tuple[str, str, str], Straggler] = {}
        self._stop = threading.Event()
        self._lock = threading.Lock()  # one look at a time
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)
        self.nodes: list[NodeStatus] = []
        self.advice: dict[tuple[str, str], list[Advice]] = {}
        self.at_ns = 0
        self.took_s = 0.0
        self.rounds_dropped = 0  # that nodes told of since we look
        self._dropped: dict[tuple[str, str], int] = {}
        self._unwritten: list[tuple[Any, ...]] = []  # who began and ended since the store took it last
        self.trouble = ""
        for key, each in questions.straggling(store):
            self._hysteresis.resume(key, each)
            self._known[each.cluster, each.node, key] = each

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _work(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look()
            except Exception as error:  # the next look may do better; what is shown says how old it is
                self.trouble = str(error)
                if not isinstance(error, StoreError):
                    log.exception("looking at the fleet failed")

    def look_first(self) -> None:
        """Where nobody has looked yet; who asks at the same time waits for the same look."""
        with self._lock:
            if not self.at_ns:
                self._look()

    def look(self) -> None:
        with self._lock:
            self._look()

    def _look(self) -> None:
        began = time.perf_counter()
        now_ns = self._now_ns()
        found = peers.standings(questions.members(self._store, now_ns))
        findings = questions.lasting_findings(self._store, now_ns)
        straggling, ended = self._hysteresis.step(found, now_ns, findings)
        self._remember(straggling, ended, now_ns)
        self.advice = peers.advice(found, straggling)
        self.nodes = status.everybody(self._store, now_ns, [each for _, each in straggling])
        self._count_dropped()
        self.at_ns, self.trouble = now_ns, ""
        self.took_s = time.perf_counter() - began

    def _count_dropped(self) -> None:
        """Agents count from their start, and the silent say nothing: only what grew is new."""
        before, self._dropped = self._dropped, {}
        for each in self.nodes:
            place = each.cluster, each.node
            told = each.dropped_rounds if each.state != "silent" else before.get(place)
            if told is None:
                continue
            known = before.get(place, told)
            self._dropped[place] = told
            self.rounds_dropped += told - (known if known <= told else 0)

    def _remember(
        self, straggling: list[tuple[str, Straggler]], ended: list[tuple[str, Straggler]], now_ns: int
    ) -> None:
        """New ones and ended ones are written; those that last were."""
        for key, each in straggling:
            if (each.cluster, each.node, key) not in self._known:
                self._unwritten.append(_row(key, each, now_ns, False))
            self._known[each.cluster, each.node, key] = each
        for key, each in ended:
            self._known.pop((each.cluster, each.node, key), None)
            self._unwritten.append(_row(key, each, now_ns, True))
        if self._unwritten:
            self._store.insert({"stragglers": self._unwritten})
            self._unwritten = []


def _row(key: str, each: Straggler, now_ns: int, ended: bool) -> tuple[Any, ...]:
    text = msgspec.json.encode(each).decode()
    return each.cluster, each.node, key, each.since_ns, now_ns, ended, text
