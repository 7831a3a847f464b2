"""Open files sent to the socket hold nobody up, whatever it takes to close them."""

from __future__ import annotations

import array
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ingero.agent import annotation_socket
from ingero.agent.annotation_socket import AnnotationSocket


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INGERO_RUN_DIR", str(tmp_path))
    return tmp_path / "annotate.sock"


@pytest.fixture
def older_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot refuse files."""
    monkeypatch.setattr(annotation_socket, "SO_PASSRIGHTS", 9999)


class Heard:
    """What was heard."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._came = threading.Condition()
        self._go_on = threading.Event()

    def __call__(self, raw: bytes, sender: tuple[int, int]) -> str:
        with self._came:
            self.texts.append(raw)
            self._came.notify_all()
        if raw == b"hold":
            assert self._go_on.wait(20)
            self._go_on.clear()
        return ""

    def until(self, text: bytes, count: int = 1) -> None:
        with self._came:
            assert self._came.wait_for(lambda: self.texts.count(text) >= count, 20)

    @contextmanager
    def held_up(self, path: Path) -> Iterator[None]:
        """Nothing is read meanwhile."""
        before = self.texts.count(b"hold")
        say(path, b"hold")
        self.until(b"hold", before + 1)
        yield
        self._go_on.set()


class Peer:
    """A TCP connection whose close takes an hour, for its peer reads nothing; we keep only the peer."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.lingering = socket.create_connection(server.getsockname())
            self.reader, _ = server.accept()
        self.lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
        self.lingering.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self.lingering.send(b"x" * 65536)

    def give_away(self, path: Path, heard: Heard) -> None:
        """Ours is closed while the message has it still: whoever reads that has the last one."""
        files = array.array("i", [self.lingering.fileno()])
        with heard.held_up(path), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendmsg([b"hello"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)], 0, str(path))
            os.close(self.lingering.detach())


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    made: list[Peer] = []
    yield made
    for peer in made:
        peer.reader.close()  # a reset ends the lingering


def say(path: Path, text: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text, str(path))


def stuck(listening: AnnotationSocket) -> None:
    """Look until the thread that hangs is seen; each look stands for a second."""
    before = listening._stuck
    while listening._stuck == before:
        listening.look()
        threading.Event().wait(0.01)


@pytest.mark.usefixtures("older_kernel")
def test_a_socket_that_lingers_holds_up_neither_the_labels_of_others_nor_the_end(
    path: Path, peers: list[Peer]
) -> None:
    heard = Heard()
    listening = AnnotationSocket(heard)
    peers.append(Peer())
    peers[0].give_away(path, heard)
    stuck(listening)
    say(path, b"still there")
    heard.until(b"still there")
    listening.close()
    assert not path.exists()


@pytest.mark.usefixtures("older_kernel")
def test_somebody_who_goes_on_ends_the_hearing_and_that_is_said(
    path: Path, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(annotation_socket, "MOST_STUCK", 2)
    told: list[str] = []
    heard = Heard()
    listening = AnnotationSocket(heard, told.append)
    for _ in range(2):
        peers.append(Peer())
        peers[-1].give_away(path, heard)
        stuck(listening)
    assert len(told) == 1
    assert "can no longer send labels" in told[0]
    assert not path.exists()
    listening.look()
    listening.close()


@pytest.mark.usefixtures("older_kernel")
def test_files_sent_along_are_cut_off_and_the_message_counts_for_nothing(path: Path) -> None:
    heard = Heard()
    listening = AnnotationSocket(heard)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, Path(os.devnull).open() as file:
        files = array.array("i", [file.fileno()])
        for _ in range(50):
            sender.sendmsg([b"labels"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)], 0, str(path))
    say(path, b"the last")
    heard.until(b"the last")
    assert heard.texts == [b""] * 50 + [b"the last"]
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_before
    listening.close()


def test_a_kernel_that_can_refuses_files(path: Path) -> None:
    heard = Heard()
    listening = AnnotationSocket(heard)
    try:
        listening._socket.getsockopt(socket.SOL_SOCKET, annotation_socket.SO_PASSRIGHTS)
    except OSError:
        pytest.skip("this kernel cannot")
    else:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, Path(os.devnull).open() as file:
            files = array.array("i", [file.fileno()])
            with pytest.raises(PermissionError):
                sender.sendmsg([b"labels"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)], 0, str(path))
    finally:
        listening.close()


def test_what_was_sent_before_the_end_is_heard(path: Path) -> None:
    heard = Heard()
    listening = AnnotationSocket(heard)
    for number in range(5):
        say(path, b"%d" % number)
    listening.close()
    assert heard.texts == [b"0", b"1", b"2", b"3", b"4"]
