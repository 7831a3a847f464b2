"""Collectors are killed and answers cut off: what agents count as sent is in the store, once."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from ingero.fleet.push.outbox import WAITING, Pace
from ingero.model.fleet import Advice
from ingero.serve.answers.json_schemas import ANSWERS
from ingero.serve.metrics.fleet import FleetExporter, FleetSender
from ingero.serve.metrics.otlp_destination import parse
from tests.fleet.serving import collector, stored
from tests.fleet.test_store import fresh

NODES = 4
QUICK = Pace(first_pause_s=0.02, longest_pause_s=0.1, timeout_s=5, flush_s=20)


class Cutting:
    """Hands connections on, and cuts some before the answer gets back."""

    def __init__(self, to_port: int, seed: int) -> None:
        self._to, self._chance = to_port, random.Random(seed)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.cut = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._to)) as server:
            threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
            while data := server.recv(65536):
                if self._chance.random() < 1 / 3:
                    self.cut += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)

    @staticmethod
    def _copy(from_: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := from_.recv(65536):
                to.sendall(data)

    def close(self) -> None:
        self._server.close()


def senders(port: int, home: Path) -> list[FleetSender]:
    to = parse(f"http://127.0.0.1:{port}", "--fleet")
    made = [FleetSender(to, home / f"spool{at}", "c1", QUICK) for at in range(NODES)]
    for each in made:
        each.outbox.start()
    return made


def tell(boxes: list[FleetSender], numbers: range) -> set[tuple[str, str, int]]:
    """Rounds of all nodes, as fast as the queue takes them."""
    told = set()
    for number in numbers:
        for at, each in enumerate(boxes):
            while each.outbox.waiting > 20:
                threading.Event().wait(0.002)
            each.put(fresh(f"n{at}", number, run=each.run))
            told.add((f"n{at}", each.run, number))
    return told


def test_batches_survive_killed_collectors_and_cut_answers_once_each(home: Path) -> None:
    """A proxy in between cuts a third of what comes back; the collector is killed twice, amid whatever."""
    chance = random.Random(7)
    told: set[tuple[str, str, int]] = set()
    boxes: list[FleetSender] = []
    port = 0
    for life in range(3):
        with collector(home, "--no-tls", listen=f"127.0.0.1:{port}", INGERO_TOKEN="") as running:
            if not boxes:
                port = running.port
                cutting = Cutting(port, seed=7)
                boxes = senders(cutting.port, home)
            told |= tell(boxes, range(life * 100, life * 100 + chance.randint(3, 6)))
            if life < 2:
                running.kill()
            else:
                for each in boxes:
                    each.close()
    cutting.close()
    assert cutting.cut > 0
    assert [(each.outbox.dropped, each.outbox.waiting) for each in boxes] == [(0, 0)] * NODES
    assert sum(each.outbox.sent for each in boxes) == len(told)
    found = stored(home)
    assert set(found) == told
    assert set(found.values()) == {1}


def test_a_round_is_told_by_the_command_and_shown_by_another(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """push -> serve -> store -> status."""
    from ingero.agent.diagnosis import LiveDiagnosis
    from ingero.scenarios import demo
    from ingero.scenarios.catalogue import BY_NAME
    from ingero.serve.cli.main import main
    from ingero.serve.cli.surfaces import QuietSurface

    db = home / "incident.db"
    assert demo.run(demo.Played(BY_NAME["incident"], db, 7, 1e6), QuietSurface(), LiveDiagnosis) == 0
    with (
        collector(home, "--no-tls", listen="127.0.0.1:0", INGERO_TOKEN="") as running,
        pytest.MonkeyPatch.context() as set_,
    ):
        set_.setenv("INGERO_COLLECTOR_SPOOL", str(home / "spool"))
        set_.setenv("INGERO_FLEET", f"http://127.0.0.1:{running.port}")
        assert main(["fleet", "push", "--once", "-d", str(db)]) == 0
        assert main(["fleet", "status"]) == 0
        shown = capfd.readouterr().out
        assert "1 node: 1 high" in shown
        assert "cpu-contention" in shown
        assert main(["fleet", "status", "--json", "--exit-code"]) == 3
        answer = msgspec.json.decode(capfd.readouterr().out, type=ANSWERS["fleet-status"][1])
        assert [each.node for each in answer.nodes] == ["demo"]
        assert main(["fleet", "status", "--cluster", "elsewhere", "--exit-code"]) == 0
        assert "no node has reported yet" in capfd.readouterr().out


def test_whoever_traces_tells_the_collector_beside_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demonstration runs what a trace runs, without a kernel."""
    from ingero.serve.cli.main import main

    monkeypatch.setenv("INGERO_COLLECTOR_SPOOL", str(home / "spool"))
    made = ["demo", "--no-gpu", "--no-tui", "incident", "--speed", "10000", "-d", str(home / "d.db")]
    with collector(home, "--no-tls", listen="127.0.0.1:0", INGERO_TOKEN="") as running:
        assert main([*made, "--fleet", f"http://127.0.0.1:{running.port}"]) == 0
    assert {node for node, _, _ in stored(home)} == {"demo"}
    assert list((home / "spool").iterdir())  # and none of the machine's own: root's is in /var/lib


def test_what_is_dropped_or_waits_is_told_to_whoever_traces(tmp_path: Path) -> None:
    sender = FleetSender(parse("http://127.0.0.1:1", "--fleet"), tmp_path / "s", "c1", QUICK)
    exporter = FleetExporter(sender)
    assert exporter.warnings() == ()
    for number in range(WAITING + 3):  # nobody takes them over: it was not started
        sender.put(fresh(number=number, run=sender.run))
    assert exporter.warnings() == (
        f"the fleet: http://127.0.0.1:1 does not take what is told; {WAITING} batches wait on disk",
        "the fleet: 3 batches for http://127.0.0.1:1 were dropped",
    )
    sender.standing.told(
        (Advice("own-time", 0.9, 0.2, 0.3, 8, True, pid=7), Advice("pace", 1, 1, 0.9, 8, pid=7))
    )
    assert exporter.warnings()[0] == (
        "the fleet: process 7 straggles: 90.0 % of its time is its own, 20.0 % with its 7 peers"
        " (limit 30.0 %)"
    )


def test_a_collector_that_is_away_is_one_line(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from ingero.serve.cli.main import main

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert main(["fleet", "status", "--collector", f"http://127.0.0.1:{port}"]) == 1
    assert "does not answer" in capfd.readouterr().err
    assert main(["fleet", "status"]) == 2
