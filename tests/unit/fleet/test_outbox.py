"""Sending goes on whatever the collector does: again after failures, once when it was taken, counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero.fleet.push.outbox import WAITING, Outbox, Pace
from ingero.fleet.push.spool import Batch, Spool
from ingero.serve.metrics.otlp_sending import Outcome

RUN = "0123456789abcdef"
QUICK = Pace(first_pause_s=0.001, longest_pause_s=0.005, timeout_s=5, flush_s=5)
TAKEN, AGAIN, REFUSED = Outcome(True), Outcome(False, again=True, why="away"), Outcome(False, why="HTTP 400")


def batch(number: int) -> Batch:
    return Batch(number * 10**9, RUN, number, "metrics", str(number).encode())


class Collector:
    """Says what it is told to, in turn, then takes everything."""

    def __init__(self, *outcomes: Outcome, wanted: int = 0) -> None:
        self.outcomes, self.wanted = list(outcomes), wanted
        self.given: list[bytes] = []
        self.reached = threading.Event()

    def send(self, signal: str, body: bytes, timeout_s: float) -> Outcome:
        self.given.append(body)
        if len(self.given) >= self.wanted:
            self.reached.set()
        return self.outcomes.pop(0) if self.outcomes else TAKEN


def sent(collector: Collector, spool: Spool, numbers: range, pace: Pace = QUICK) -> Outbox:
    box = Outbox("http://c", spool, collector.send, pace)
    box.start()
    for number in numbers:
        box.put(batch(number))
    assert collector.reached.wait(10)
    box.stop()
    return box


def test_a_batch_is_sent_until_it_is_taken_and_not_again(tmp_path: Path) -> None:
    collector = Collector(AGAIN, AGAIN, TAKEN, wanted=5)
    box = sent(collector, Spool(tmp_path), range(1, 4))
    assert collector.given == [b"1", b"1", b"1", b"2", b"3"]
    assert (box.sent, box.dropped, box.waiting) == (3, 0, 0)


def test_a_batch_that_is_refused_is_dropped_and_counted(tmp_path: Path) -> None:
    box = sent(Collector(REFUSED, wanted=2), Spool(tmp_path), range(1, 3))
    assert (box.sent, box.dropped) == (1, 1)


def test_what_is_not_taken_at_the_end_waits_for_the_next_agent(tmp_path: Path) -> None:
    away = Collector(*[AGAIN] * 1000, wanted=1)
    box = sent(away, Spool(tmp_path), range(1, 4), Pace(60, 60, timeout_s=1, flush_s=0.2))
    assert (box.sent, box.dropped, box.waiting) == (0, 0, 3)
    there = Collector(wanted=3)
    again = sent(there, Spool(tmp_path), range(0))
    assert there.given == [b"1", b"2", b"3"]
    assert again.sent == 3


def test_whoever_hands_in_never_waits(tmp_path: Path) -> None:
    """The sender hangs: the queue fills, and what does not fit is counted."""
    hanging, released = threading.Event(), threading.Event()

    def send(signal: str, body: bytes, timeout_s: float) -> Outcome:
        hanging.set()
        released.wait(30)
        return TAKEN

    box = Outbox("http://c", Spool(tmp_path), send, QUICK)
    box.start()
    box.put(batch(1))
    assert hanging.wait(10)
    for number in range(2, WAITING + 12):
        box.put(batch(number))
    assert box.dropped == 10
    released.set()
    box.stop()
    assert box.sent == WAITING + 1


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 507, None])
def test_a_collector_that_fails_has_refused_nothing(tmp_path: Path, status: int | None) -> None:
    from ingero.serve.metrics.fleet import FleetSender
    from ingero.serve.metrics.otlp_destination import parse

    sender = FleetSender(parse("http://127.0.0.1:1", "--fleet"), tmp_path, "c")
    sender._http.send = lambda *_: Outcome(False, why="?", status=status)  # type: ignore[method-assign]
    assert sender._send("metrics", b"", 1).again


def test_advice_and_errors_that_can_be_mended_keep_the_batch(tmp_path: Path) -> None:
    from ingero.serve.metrics.fleet import MENDABLE, FleetSender
    from ingero.serve.metrics.otlp_destination import parse

    sender = FleetSender(parse("http://127.0.0.1:1", "--fleet"), tmp_path, "c")
    answers: list[Outcome] = [Outcome(False, why="HTTP 403", status=403), Outcome(False, status=400)]
    answers.append(Outcome(True, status=200, advice='[{"measure":"pace","value":1,"median":2,"limit":1.8,'
                           '"peers":8,"straggles":true,"pid":7}]'))  # fmt: skip
    sender._http.send = lambda *_: answers.pop(0)  # type: ignore[method-assign]
    send: Callable[[str, bytes, float], Outcome] = sender._send
    assert 403 in MENDABLE
    assert send("metrics", b"", 1).again
    assert not send("metrics", b"", 1).again
    assert send("metrics", b"", 1).accepted
    assert sender.standing.advice[0].straggles
