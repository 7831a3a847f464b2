"""Tells a collector every few seconds how this node does, beside a trace or from a recording.

The trace hands over the view it has anyway and goes on; rounds are made and sent in threads of
their own, and what nobody takes waits on disk (fleet/push).
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from ingero import units
from ingero.fleet.push import otlp
from ingero.fleet.push.outbox import Outbox, Pace
from ingero.fleet.push.spool import Batch, Spool
from ingero.fleet.push.standing import OwnStanding
from ingero.fleet.push.taking import Taker, told
from ingero.model.finding import Finding
from ingero.model.fleet import ROUND_S, Advice, FindingHealth, Health
from ingero.model.live import LiveView
from ingero.model.metrics import SeriesPoint, Snapshot
from ingero.model.report import Bound
from ingero.serve.answers.finding_news import FindingNews, What
from ingero.serve.metrics.otlp_destination import Destination
from ingero.serve.metrics.otlp_sending import HttpSender, Outcome

log = logging.getLogger(__name__)
REPEAT_ROUNDS = 6  # findings that last are told again, so that nobody takes them for over
MANY_WAIT = 4  # batches: fewer are on their way
# Somebody has to mend these at one end or the other; what was measured meanwhile is worth keeping.
MENDABLE = {401, 403, 404, 421}


class FleetSender:
    """An outbox to one collector, and how the node stands by what it said."""

    def __init__(
        self,
        to: Destination,
        spool: Path,
        cluster: str,
        pace: Pace | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = to.url
        self._http = HttpSender(to)
        self.run = secrets.token_hex(8)
        self._taker = Taker(cluster, self.run)
        self.outbox = Outbox(to.url, Spool(spool), self._send, pace)
        self._news = FindingNews()
        self._open: dict[str, FindingHealth] = {}
        self._changed: list[FindingHealth] = []
        self._rounds = 0
        self.standing = OwnStanding(now_s)

    def _send(self, signal: str, body: bytes, timeout_s: float) -> Outcome:
        outcome = self._http.send(signal, body, timeout_s)
        if outcome.accepted and signal == "metrics":
            self.standing.told(_read_advice(outcome.advice))
        # OTLP has some of 5xx tried again; a collector of ours that fails has not looked at the batch.
        theirs = outcome.status is None or outcome.status >= 500 or outcome.status in MENDABLE
        if theirs and not outcome.accepted:
            return replace(outcome, again=True)
        return outcome

    def look(self, findings: tuple[Finding, ...], *, last: bool = False) -> None:
        """What is new about the findings is told with the next round."""
        news = self._news.conclude(findings) if last else self._news.look(findings)
        for each in news:
            ended = each.what is What.ENDED
            known = told(each.finding, each.opened_ns, ended=ended)
            self._changed.append(known)
            if ended:
                self._open.pop(each.finding.key, None)
            else:
                self._open[each.finding.key] = known
        for finding in findings:
            if (known_one := self._open.get(finding.key)) is not None:
                self._open[finding.key] = told(finding, known_one.opened_ns)

    def tell(
        self,
        snapshot: Snapshot,
        bound: Iterable[Bound] = (),
        commands: Mapping[int, str] | None = None,
        *,
        of_round: bool = False,
    ) -> Health:
        """One round, into the outbox."""
        self._rounds += 1
        findings, self._changed = self._changed, []
        if self._rounds % REPEAT_ROUNDS == 0:
            fresh = {(each.id, each.opened_ns) for each in findings}
            findings += [each for each in self._open.values() if (each.id, each.opened_ns) not in fresh]
        health = self._taker.take(snapshot, bound, commands, findings, self.outbox.dropped, of_round=of_round)
        self.standing.look(health)
        self.put(health)
        return health

    def put(self, health: Health) -> None:
        self.outbox.put(Batch(health.at_ns, health.run, health.number, "metrics", otlp.metrics(health)))
        if (body := otlp.logs(health)) is not None:
            self.outbox.put(Batch(health.at_ns, health.run, health.number, "logs", body))

    def close(self) -> None:
        self.outbox.stop()
        self._http.close()


def _read_advice(text: str) -> tuple[Advice, ...]:
    if not text:
        return ()
    try:
        return tuple(msgspec.json.decode(text, type=list[Advice]))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()


class FleetExporter:
    """A way out of a trace (serve/metrics/surface.py)."""

    def __init__(self, sender: FleetSender, every_s: float = ROUND_S) -> None:
        self._sender, self._every_s = sender, every_s
        self._view: LiveView | None = None
        self._read: Callable[[], Snapshot] | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()  # between the look of a second and the round
        self._thread = threading.Thread(target=self._work, name="fleet-rounds", daemon=True)

    def start(self, read: Callable[[], Snapshot]) -> None:
        self._read = read
        self._sender.outbox.start()
        self._thread.start()

    def look(self, view: LiveView) -> None:
        with self._lock:
            self._view = view
            self._sender.look(view.findings)

    def own(self) -> dict[str, list[SeriesPoint]]:
        return {}

    def warnings(self) -> tuple[str, ...]:
        """What the fleet says of this node, for people."""
        box, url = self._sender.outbox, self._sender.url
        standing = self._sender.standing
        said = [_in_words(each, standing.by_itself) for each in standing.advice if each.straggles]
        if box.waiting > MANY_WAIT:
            said.append(f"the fleet: {url} does not take what is told; {box.waiting} batches wait on disk")
        if box.dropped:
            said.append(f"the fleet: {box.dropped} batches for {url} were dropped")
        return tuple(said)

    def stop(self, view: LiveView | None) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
            if view is not None:
                with self._lock:
                    self._view = view
                    self._sender.look(view.findings, last=True)
                self._round()
        self._sender.close()

    def _work(self) -> None:
        while not self._stop.wait(self._every_s):
            self._round()

    def _round(self) -> None:
        assert self._read is not None
        try:
            snapshot = self._read()
            with self._lock:
                view = self._view
                commands = {each.pid: each.cmdline for each in view.targets} if view is not None else {}
                self._sender.tell(snapshot, view.bound if view is not None else (), commands)
        except Exception:  # a mistake of ours: the next round may go
            log.exception("fleet: a round could not be made")


def _in_words(advice: Advice, by_itself: bool) -> str:
    who = f"process {advice.pid}" if advice.pid is not None else f"GPU {advice.gpu}"
    value, usual, limit = (
        _figure(advice.measure, each) for each in (advice.value, advice.median, advice.limit)
    )
    if advice.measure == "own-time":
        told_of = f"{value} of its time is its own, {usual} with"
    elif advice.measure == "clock":
        told_of = f"clock {value}, {usual} with"
    else:
        told_of = f"pace {value}, {usual} with"
    source = "the fleet, by what it said last" if by_itself else "the fleet"
    return f"{source}: {who} straggles: {told_of} its {advice.peers - 1} peers (limit {limit})"


def _figure(measure: str, value: float) -> str:
    if measure == "own-time":
        return units.format_share(value)
    return f"{value / 1e6:.0f} MHz" if measure == "clock" else f"{value:.3g}"
