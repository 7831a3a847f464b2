"""OTLP as others speak it: what passes through a program that knows only OTLP arrives whole and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingero.fleet.collector.credentials import token_for
from ingero.serve.metrics.fleet import FleetSender
from ingero.serve.metrics.otlp_destination import parse
from tests.ebpf.real_runs import until
from tests.fleet.passing_on import PassingOn
from tests.fleet.serving import Collector, collector, nodes, stored
from tests.fleet.test_nothing_is_lost import QUICK
from tests.fleet.test_store import fresh
from tests.unit.fleet.rounds import finding

SECRET = "a-secret-of-the-tests-that-is-long-enough"


def looked_at(running: Collector) -> dict[str, Any]:
    """What is shown, once the last look had all of it."""
    known = {each["node"]: each for each in nodes(running, token="")}
    return known if len(known) == 3 and known["n1"]["findings"] else {}


@pytest.mark.parametrize("as_json", [False, True], ids=["protobuf", "json"])
def test_rounds_of_several_nodes_in_one_request_of_another_arrive_once_each(
    home: Path, as_json: bool
) -> None:
    secret = home / "secret"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    told = set()
    words = ("--no-tls", "--node-secret", str(secret))
    with collector(home, *words, listen="127.0.0.1:0", INGERO_TOKEN="") as running:
        between = PassingOn(running.port, token_for(SECRET.encode(), "n*"), as_json)
        to = parse(f"http://127.0.0.1:{between.port}", "--fleet")
        senders = [FleetSender(to, home / f"spool{at}", "c1", QUICK) for at in range(3)]
        for at, each in enumerate(senders):
            each.outbox.start()
            for number in (1, 2, 3):
                findings = [finding(cause="log-shipper has it")] if at == number == 1 else []
                each.put(fresh(f"n{at}", number, run=each.run, findings=findings))
                told.add((f"n{at}", each.run, number))
        for each in senders:
            each.close()
        between.close()
        assert set(between.answers) == {200}
        known = until(lambda: looked_at(running), "the collector had looked at all that was told", 60)
        assert known["n1"]["findings"][0]["cause"] == "log-shipper has it"
        assert known["n0"]["gpus"] == 1
    found = stored(home)
    assert set(found) == told
    assert set(found.values()) == {1}


def test_something_in_between_cannot_speak_for_nodes_it_was_not_named_for(home: Path) -> None:
    secret = home / "secret"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    words = ("--no-tls", "--node-secret", str(secret))
    with collector(home, *words, listen="127.0.0.1:0", INGERO_TOKEN="") as running:
        between = PassingOn(running.port, token_for(SECRET.encode(), "rack7-*"), as_json=False)
        sender = FleetSender(
            parse(f"http://127.0.0.1:{between.port}", "--fleet"), home / "spool", "c1", QUICK
        )
        sender.outbox.start()
        sender.put(fresh("rack8-a", run=sender.run))
        sender.close()
        between.close()
        assert between.answers == [403]
    assert stored(home) == {}
