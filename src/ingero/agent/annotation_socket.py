"""The socket jobs send their labels to: any user may, each for its own processes.

Datagrams, so that a job never waits for us; the kernel attaches who sent each. A
queue of this kind holds as few as ten messages (net.unix.max_dgram_qlen), so a thread
of its own empties it, as often as it takes to find it a third full and at most a
thousand times a second: waking up costs more than a message. While somebody sends more
than is allowed it comes seldom. Whoever has bound an abstract name, as `ingero annotate`
does, is told what became of it.

A message may have open files with it, and a file may take as long to close as its sender
likes: a socket that lingers, a file system of the sender's own. Kernels since 6.16 can be
told to refuse them. Before, they are cut off and the kernel closes them in the thread that
listens; one that does not come back is replaced, a few times, and nobody waits for it.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ingero.agent.annotations import TOO_MANY
from ingero.annotate import MAX_BYTES, socket_path
from ingero.errors import IngeroError

SHORTEST_S, LONGEST_S = 0.001, 0.01
FILLED = 0.3  # of the queue, when it is emptied
AT_ONCE = 64  # messages; more than that wait, and their senders learn that the queue is full
QUEUE = Path("/proc/sys/net/unix/max_dgram_qlen")
QUEUE_BYTES = 1 << 20
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_ANCILLARY_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size)
SO_PASSRIGHTS = 83  # asm-generic/socket.h, since Linux 6.16
MOST_STUCK = 8  # threads
END_S = 2.0
LAST_ROUNDS = 16  # of AT_ONCE messages: the queue holds at most some hundred

Hear = Callable[[bytes, tuple[int, int]], str]


def open_socket(hear: Hear, warnings: dict[str, str]) -> AnnotationSocket | None:
    """None where it cannot be opened: tracing goes on without labels, and says why."""
    try:
        return AnnotationSocket(hear, lambda why: warnings.update(annotate=why))
    except IngeroError as error:
        warnings["annotate"] = error.message
        return None


class AnnotationSocket:
    """Open while tracing; the instance lock is held, so what stands in its place is a dead agent's."""

    def __init__(self, hear: Hear, tell: Callable[[str], None] = lambda _: None) -> None:
        self._hear, self._tell = hear, tell
        self._path = Path(socket_path())
        self._socket = _bound(self._path)
        self._inode = self._path.lstat().st_ino
        self._wanted = max(1.0, FILLED * min(_queue_length(), AT_ONCE))
        self._pause_s = SHORTEST_S
        self._stopping, self._stop = os.pipe2(os.O_CLOEXEC)
        self._stuck = 0
        self._rounds = self._seen = 0  # odd while the queue is being emptied
        self._closed = False
        self._thread: threading.Thread | None = None
        self._listen()

    def _listen(self) -> None:
        self._thread = threading.Thread(target=self._work, name="annotations", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        wake = select.poll()
        wake.register(self._socket.fileno(), select.POLLIN)
        wake.register(self._stopping, select.POLLIN)
        while self._stopping not in (fd for fd, _ in wake.poll()):
            pause_s = self.drain()
            if self._replaced():
                return
            time.sleep(pause_s)
        self._end()

    def _replaced(self) -> bool:
        return threading.current_thread() is not self._thread

    def drain(self) -> float:
        """Hear what is there; how many seconds to wait before the next time."""
        self._rounds += 1
        flooded, count = False, 0
        for count in range(AT_ONCE):  # noqa: B007
            try:
                raw, ancillary, flags, address = self._socket.recvmsg(MAX_BYTES, _ANCILLARY_BYTES)
            except OSError:  # nothing there
                break
            if self._replaced():  # held up in there, and another one listens by now
                return 0.0
            flooded |= self._one(raw, ancillary, flags, address) == TOO_MANY
        self._rounds += 1
        paced_s = self._pause_s * self._wanted / max(count, 1)
        self._pause_s = LONGEST_S if flooded else min(LONGEST_S, max(SHORTEST_S, paced_s))
        return self._pause_s

    def _one(self, raw: bytes, ancillary: list[tuple[int, int, bytes]], flags: int, address: object) -> str:
        sender = None
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sender = _CREDENTIALS.unpack_from(data)
        if sender is None:
            return ""
        # There is room for who sent it and for nothing else: what else was sent along is cut off.
        whole = not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        told = self._hear(raw if whole else b"", sender[:2])
        # A path could by now be somebody else's socket; an abstract name is the sender's own.
        if isinstance(address, bytes) and address.startswith(b"\0"):
            with suppress(OSError):
                self._socket.sendto(told.encode() or b"ok", socket.MSG_DONTWAIT, address)
        return told

    def look(self) -> None:
        """Once a second: a thread that has not come back from the queue since the last look is replaced."""
        if self._thread is None:
            return
        before, self._seen = self._seen, self._rounds
        if self._seen % 2 == 0 or self._seen != before:
            return
        self._stuck += 1
        self._seen = self._rounds = 0
        if self._stuck < MOST_STUCK:
            self._listen()
            return
        self._thread = None
        self._unlink()
        self._tell("jobs can no longer send labels: somebody sends open files that cannot be closed")

    def close(self) -> None:
        """Once is enough, more often is fine. What hangs is left to the kernel, which ends it with us."""
        if self._closed:
            return
        self._closed = True
        os.write(self._stop, b".")
        if self._thread is not None:
            self._thread.join(END_S)
        self._unlink()
        if self._thread is None or self._thread.is_alive():
            self._socket.detach()  # closing it closes what waits in it, and would hang here

    def _end(self) -> None:
        """Hear the last ones; with nobody able to send more, closing finds nothing that could hold it up."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)
        for _ in range(LAST_ROUNDS):
            self.drain()
        if self._replaced():
            return
        self._socket.close()
        os.close(self._stop)
        os.close(self._stopping)

    def _unlink(self) -> None:
        with suppress(OSError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()


def _bound(path: Path) -> socket.socket:
    try:
        _require_own(path.parent)
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise IngeroError(f"jobs cannot send labels: {path} is not a socket")
            path.unlink()
        found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE_BYTES)
        with suppress(OSError):  # an older kernel
            found.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
        found.bind(str(path))
        path.chmod(0o666)  # every user's jobs: what each may say is decided by who it is
    except OSError as error:
        raise IngeroError(f"jobs cannot send labels: {path}: {error.strerror or error}") from error
    return found


def _queue_length() -> int:
    try:
        return int(QUEUE.read_text())
    except (OSError, ValueError):
        return 10  # the kernel's own default


def _require_own(directory: Path) -> None:
    """Where others may put files, another socket could stand in our place."""
    about = directory.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise IngeroError(f"jobs cannot send labels: {directory} can be written to by others")
