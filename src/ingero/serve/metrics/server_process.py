"""A server in a process of its own: nobody who asks it can hold up the trace, or take its memory.

It is forked before the trace begins and has nothing of it: a *tender*, which starts the server
again should it end, and the server, a user without any right. Both end with the trace. The server asks
for what it shows; of what it says the trace reads that question and nothing else.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import pickle
import secrets
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ingero import privileges
from ingero.model.metrics import Snapshot

log = logging.getLogger(__name__)
ROOM_BYTES = 512 << 20  # of address space, beyond what is there at the start
NICE = 5
AGAIN_S = 1.0
END_S = 2.0
# What Python imports when it first needs it: the server may not read our files any more then.
LATER = (
    "concurrent.futures.thread",
    *(f"encodings.{each}" for each in ("ascii", "idna", "latin_1", "punycode", "unicode_escape", "utf_8")),
)
GO, READY = b"go", b"ready"
ASKED = struct.Struct("<QQ")  # a number of this question, and the moment of the snapshot that is there
PART = struct.Struct("<QB")  # the question's number, and what comes after this part
MORE, LAST, FAILED = range(3)
PART_BYTES = 64 << 10
Serve = Callable[[Callable[[], Snapshot], Callable[[], None]], None]  # reads, says that it is ready


class ServerProcess:
    """The trace's side."""

    def __init__(self, serve: Serve) -> None:
        """Forks: before there are threads, probes or a database."""
        self._life, life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._questions, questions = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._life.close()
                self._questions.close()
                _tend(serve, life, questions)
            finally:
                os._exit(1)
        life.close()
        questions.close()
        self._thread: threading.Thread | None = None

    def start(self, read: Callable[[], Snapshot]) -> None:
        """Returns once connections are taken."""
        self._thread = threading.Thread(target=self._tell, args=(read,), name="metrics", daemon=True)
        self._thread.start()
        self._life.settimeout(END_S)
        with suppress(OSError):
            self._life.send(GO)
            self._life.recv(len(READY))

    def _tell(self, read: Callable[[], Snapshot]) -> None:
        with suppress(OSError):  # closed
            while asked := self._questions.recv(ASKED.size):
                if len(asked) != ASKED.size:
                    continue
                number, known_ns = ASKED.unpack(asked)
                try:
                    snapshot = read()
                    text = b"" if snapshot.at_ns == known_ns else pickle.dumps(snapshot)
                except Exception:  # a defect of ours costs this answer, not all that come after it
                    log.exception("no metrics for the server")
                    self._questions.send(PART.pack(number, FAILED))
                else:
                    self._send(number, text)

    def _send(self, number: int, text: bytes) -> None:
        for at in range(0, len(text) or 1, PART_BYTES):
            after = LAST if at + PART_BYTES >= len(text) else MORE
            self._questions.send(PART.pack(number, after) + text[at : at + PART_BYTES])

    def ended(self) -> bool:
        """The tender is gone, so nobody would start the server again."""
        if self.pid:
            with suppress(ChildProcessError):
                if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                    return False
            self.pid = 0
        return True

    def stop(self) -> None:
        for each in (self._life, self._questions):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        until = time.monotonic() + END_S
        while not self.ended() and time.monotonic() < until:
            time.sleep(0.005)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


# --- in the processes that were forked -------------------------------------------------------


def _tend(serve: Serve, life: socket.socket, questions: socket.socket) -> None:
    """A server after the other, until the trace is gone."""
    gc.freeze()
    os.setsid()  # signals of the terminal are for the trace
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for at in (0, 1):
        os.dup2(nowhere, at)
    if not life.recv(len(GO)):
        os._exit(0)
    while True:
        server = os.fork()
        if server == 0:
            _become_server(serve, life, questions)
        os.waitpid(server, 0)
        if select.select([life], [], [], AGAIN_S)[0]:
            os._exit(0)


def _become_server(serve: Serve, life: socket.socket, questions: socket.socket) -> None:
    try:
        for name in LATER:
            importlib.import_module(name)
        privileges.become_nobody()  # sockets and keys are open by now
        os.nice(NICE)
        threading.Thread(target=_end_with, args=(life,), daemon=True).start()
        serve(SnapshotAsking(questions), lambda: _say_ready(life))
    finally:
        os._exit(1)


def _say_ready(life: socket.socket) -> None:
    privileges.bound(ROOM_BYTES)
    with suppress(OSError):  # of a second server nobody waits to hear
        life.send(READY, socket.MSG_DONTWAIT)


def _end_with(life: socket.socket) -> None:
    with suppress(OSError):
        while life.recv(1):
            pass
    os._exit(0)


class NoAnswerError(Exception):
    """Whoever asked is told that something went wrong."""


class SnapshotAsking:
    """The newest snapshot, from the trace; one thread at a time asks."""

    def __init__(self, questions: socket.socket) -> None:
        self._questions = questions
        self._number = secrets.randbits(63)  # answers to a server before this one are not ours
        self._known: Snapshot | None = None

    def __call__(self) -> Snapshot:
        self._number = (self._number + 1) % (1 << 64)
        self._questions.send(ASKED.pack(self._number, self._known.at_ns if self._known else 0))
        text = b"".join(self._parts())
        if text:
            self._known = pickle.loads(text)  # made by the trace, which may do more than we
        assert self._known is not None
        return self._known

    def _parts(self) -> list[bytes]:
        parts: list[bytes] = []
        while True:
            message = self._questions.recv(PART.size + PART_BYTES)
            if len(message) < PART.size:
                os._exit(0)  # the trace is over
            number, after = PART.unpack_from(message)
            if number == self._number:
                if after == FAILED:
                    raise NoAnswerError("the trace could not tell its metrics")
                parts.append(message[PART.size :])
                if after == LAST:
                    return parts
