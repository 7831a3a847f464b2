"""A job's end of the labels: cheap, and never in its way."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ingero.annotate import Annotator, message, socket_path


def listening(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(str(path))
    found.settimeout(5)
    return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[socket.socket]:
    with listening(tmp_path / "annotate.sock") as found:
        yield found


def test_labels_arrive_with_the_time_of_the_job(agent: socket.socket) -> None:
    assert Annotator(agent.getsockname())(step=120, epoch=3)
    head, *labels = agent.recv(4096).decode().split("\n")
    assert labels == ["step=120", "epoch=3"]
    assert head.split()[0] == "ingero1"
    assert head.split()[2:] == ["0", "0"]


def test_a_job_is_not_disturbed_by_an_agent_that_is_not_there(tmp_path: Path) -> None:
    assert not Annotator(str(tmp_path / "annotate.sock"))(step=1)
    assert not Annotator(str(tmp_path / ("long" * 40)))(step=1)


def test_a_job_is_not_disturbed_by_an_agent_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "annotate.sock"
    listening(path).close()  # the file stays, nobody is behind it
    annotate = Annotator(str(path))
    assert not annotate(step=1)
    path.unlink()
    with listening(path) as agent:
        assert annotate(step=2)
        assert agent.recv(4096).endswith(b"step=2")


def test_a_full_queue_is_counted_and_told_later(agent: socket.socket) -> None:
    annotate = Annotator(agent.getsockname())
    sent = sum(annotate(step=number) for number in range(5_000))
    assert 0 < sent < 5_000
    assert annotate.unsent == 5_000 - sent
    agent.setblocking(False)
    with suppress(BlockingIOError):
        while agent.recv(4096):
            pass
    assert annotate(step=5_000)
    assert agent.recv(4096).split()[3] == str(5_000 - sent).encode()
    assert annotate.unsent == 0


def test_a_child_sends_for_itself(agent: socket.socket) -> None:
    agent.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    annotate = Annotator(agent.getsockname())
    child = os.fork()
    if not child:
        annotate(step=1)
        os._exit(0)
    os.waitpid(child, 0)
    _, ancillary, _, _ = agent.recvmsg(4096, 256)
    assert int.from_bytes(ancillary[0][2][:4], sys.byteorder) == child


def test_a_value_with_lines_is_one_value() -> None:
    assert message({"request": "a\nstep=9\r\nb"}).endswith(b"\nrequest=a step=9 b")


def test_the_socket_is_where_the_agent_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGERO_RUN_DIR", "/somewhere")
    assert socket_path() == "/somewhere/annotate.sock"
    monkeypatch.delenv("INGERO_RUN_DIR")
    assert socket_path() == "/run/ingero/annotate.sock"


def test_a_job_that_labels_loads_nothing_else_of_ours() -> None:
    ours = "('ingero', 'numpy', 'click')"
    listed = f"import sys, ingero.annotate; print(*(m for m in sys.modules if m.startswith({ours})))"
    out = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True).stdout
    assert sorted(out.split()) == ["ingero", "ingero.annotate"]


def test_what_is_sent_to_a_worker_speaks_there(agent: socket.socket) -> None:
    path = agent.getsockname()
    there = pickle.loads(pickle.dumps(Annotator(path)))
    assert there(step=7)
    assert agent.recv(4096).endswith(b"step=7")
    assert pickle.loads(pickle.dumps(Annotator()))._given is None
