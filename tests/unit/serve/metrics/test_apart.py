"""The server beside a trace: whatever is done to it, the trace goes on."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ingero import privileges
from ingero.model.metrics import SeriesPoint, Snapshot
from ingero.serve.metrics import prometheus
from ingero.serve.metrics.prometheus import PrometheusExporter
from ingero.serve.web.opening import Wanted, open_server
from ingero.serve.web.private_files import Folder
from ingero.serve.web.server import CONNECTIONS, REFUSED, Address

FLOOD = 800
TOKEN = "a-token-for-this-test-alone"


@dataclass
class Served:
    """An exporter, and what it is told to show."""

    exporter: PrometheusExporter
    port: int
    trust: ssl.SSLContext
    shown: list[Snapshot] = field(default_factory=list)

    def show(self, events: float) -> None:
        at_ns = time.time_ns()
        self.shown.append(Snapshot(at_ns, 0, "node", {"events": [SeriesPoint((), events, 0)]}))

    def scrape(self) -> str:
        asked = urllib.request.Request(
            f"https://localhost:{self.port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(asked, timeout=20, context=self.trust) as answer:
            return str(answer.read().decode())

    @property
    def tender(self) -> int:
        return self.exporter._server.pid

    @property
    def server(self) -> int:
        return wait_for(lambda: next(iter(children(self.tender)), 0))

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.server}/fd").iterdir()))


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(what: Callable[[], int]) -> int:
    deadline = time.monotonic() + 20
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.01)
    return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    wanted = Wanted(Address("127.0.0.1", 0))
    opened = open_server(wanted, Folder(tmp_path / "server"), {"T": TOKEN}, ("T",))
    trust = ssl.create_default_context(cafile=tmp_path / "server/certificate.pem")
    made = Served(PrometheusExporter(opened), int(opened.url.rpartition(":")[2]), trust)
    made.show(1)
    made.exporter.start(lambda: made.shown[-1])
    try:
        yield made
    finally:
        made.exporter.stop(None)


def test_what_is_scraped_is_the_newest(served: Served) -> None:
    for events in (1, 2, 30_000):
        served.show(events)
        assert f"ingero_events_total {float(events)}" in served.scrape()
        assert f"ingero_events_total {float(events)}" in served.scrape()  # not sent again


def test_an_answer_of_many_parts_arrives_whole(served: Served) -> None:
    many = [SeriesPoint((f"reason-{number}",), number, 0) for number in range(20_000)]
    served.shown.append(Snapshot(time.time_ns(), 0, "node", {"lost.events": many}))
    assert served.scrape().count("ingero_lost_events_total{") == len(many)


def test_the_server_may_do_nothing_but_serve(served: Served) -> None:
    status = Path(f"/proc/{served.server}/status").read_text()
    assert re.search(r"^CapEff:\s+0+$", status, re.M)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    if os.geteuid() == 0 and privileges.nobody_reads(Path(privileges.__file__), Path(os.__file__)):
        assert re.search(r"^Uid:(\s+65534){4}$", status, re.M)
        assert re.search(r"^Gid:(\s+65534){4}$", status, re.M)
        assert re.search(r"^Groups:\s*$", status, re.M)
    limits = Path(f"/proc/{served.server}/limits").read_text()
    assert re.search(r"^Max file size\s+0\s", limits, re.M)
    assert not re.search(r"^Max address space\s+unlimited", limits, re.M)


def test_an_answer_that_fails_is_one_failed_scrape_and_not_the_last(served: Served) -> None:
    served.scrape()
    shown = served.shown[:]
    served.shown.clear()  # there is no last one to read
    with pytest.raises(urllib.error.HTTPError) as failed:
        served.scrape()
    failed.value.close()
    assert failed.value.code == 500
    served.shown.extend(shown)
    assert "ingero_events_total 1.0" in served.scrape()


def test_nobody_can_ask_who_is_at_the_other_end(tmp_path: Path) -> None:
    """Which reads a table of the kernel's: all that needs was imported while our files could be read."""
    opened = open_server(Wanted(Address("127.0.0.1", 0), tls=False), Folder(tmp_path / "server"), {}, ())
    exporter = PrometheusExporter(opened)
    exporter.start(lambda: Snapshot(1, 0, "node", {"events": [SeriesPoint((), 1.0, 0)]}))
    try:
        with urllib.request.urlopen(f"{opened.url}/metrics", timeout=20) as answer:
            assert b"ingero_events_total 1.0" in answer.read()
    finally:
        exporter.stop(None)


def test_a_server_that_is_killed_is_started_again(served: Served) -> None:
    first = served.server
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: served.server != first)
    assert "ingero_events_total 1.0" in served.scrape()
    assert served.exporter.warnings() == ()


def test_that_nobody_serves_is_said_and_the_end_comes_anyway(served: Served) -> None:
    server = served.server
    os.kill(served.tender, signal.SIGKILL)
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: bool(served.exporter.warnings()))
    assert served.exporter.warnings() == (prometheus.ENDED,)


def test_both_processes_end_with_whoever_traces(served: Served) -> None:
    tender, server = served.tender, served.server
    served.exporter.stop(None)
    assert not Path(f"/proc/{tender}").exists()
    wait_for(lambda: not Path(f"/proc/{server}").exists())


def test_bare_connections_and_unfinished_handshakes_are_bounded(served: Served) -> None:
    """The flood comes from one address; whoever scrapes, from another."""
    threads, before = threading.active_count(), served.descriptors()
    flood = []
    for number in range(FLOOD):
        made = socket.socket()
        made.bind(("127.0.0.2", 0))
        made.connect(("127.0.0.1", served.port))
        if number % 2:
            made.send(b"\x16\x03\x01\x02\x00\x01")  # a handshake that does not go on
        flood.append(made)
    try:
        assert "ingero_events_total 1.0" in served.scrape()
        assert served.descriptors() - before <= (CONNECTIONS + REFUSED) // 2 + 8  # those who scrape
        assert threading.active_count() == threads
        assert not any(_is_of(served.port, each) for each in Path("/proc/self/fd").iterdir())
    finally:
        for each in flood:
            each.close()


def _is_of(port: int, descriptor: Path) -> bool:
    """A connection to the server that is held here: at its end, not at ours."""
    try:
        with socket.socket(fileno=os.dup(int(descriptor.name))) as held:
            return bool(held.family == socket.AF_INET and held.getsockname()[1] == port)
    except (OSError, ValueError):
        return False
