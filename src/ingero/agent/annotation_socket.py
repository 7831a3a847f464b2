"""The socket jobs send their labels to: any user may, each for its own processes.

Datagrams, so that a job never waits for us; the kernel attaches who sent each. A
queue of this kind holds as few as ten messages (net.unix.max_dgram_qlen), so a thread
of its own empties it, as often as it takes to find it a third full and at most a
thousand times a second: waking up costs more than a message. While somebody sends more
than is allowed it comes seldom. Whoever has bound an abstract name, as `ingero annotate`
does, is told what became of it.
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
_ANCILLARY_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(64 * 4)

Hear = Callable[[bytes, tuple[int, int]], str]


class AnnotationSocket:
    """Open while tracing; the instance lock is held, so what stands in its place is a dead agent's."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._path = Path(socket_path())
        self._socket = _bound(self._path)
        self._inode = self._path.lstat().st_ino
        self._wanted = max(1.0, FILLED * min(_queue_length(), AT_ONCE))
        self._pause_s = SHORTEST_S
        self._stopping, self._stop = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._work, name="annotations", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        wake = select.poll()
        wake.register(self._socket.fileno(), select.POLLIN)
        wake.register(self._stopping, select.POLLIN)
        while self._stopping not in (fd for fd, _ in wake.poll()):
            time.sleep(self.drain())

    def drain(self) -> float:
        """Hear what is there; how many seconds to wait before the next time."""
        flooded, count = False, 0
        for count in range(AT_ONCE):  # noqa: B007
            try:
                raw, ancillary, flags, address = self._socket.recvmsg(MAX_BYTES, _ANCILLARY_BYTES)
            except OSError:  # nothing there
                break
            flooded |= self._one(raw, ancillary, flags, address) == TOO_MANY
        paced_s = self._pause_s * self._wanted / max(count, 1)
        self._pause_s = LONGEST_S if flooded else min(LONGEST_S, max(SHORTEST_S, paced_s))
        return self._pause_s

    def _one(self, raw: bytes, ancillary: list[tuple[int, int, bytes]], flags: int, address: object) -> str:
        sender = None
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sender = _CREDENTIALS.unpack_from(data)
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                _close_all(data)
        if sender is None:
            return ""
        told = self._hear(b"" if flags & socket.MSG_TRUNC else raw, sender[:2])
        # A path could by now be somebody else's socket; an abstract name is the sender's own.
        if isinstance(address, bytes) and address.startswith(b"\0"):
            with suppress(OSError):
                self._socket.sendto(told.encode() or b"ok", socket.MSG_DONTWAIT, address)
        return told

    def close(self) -> None:
        """Once is enough, more often is fine."""
        if self._socket.fileno() < 0:
            return
        os.write(self._stop, b".")
        self._thread.join()
        self.drain()
        self._socket.close()
        os.close(self._stop)
        os.close(self._stopping)
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


def _close_all(descriptors: bytes) -> None:
    """Somebody sent open files along."""
    for (number,) in struct.iter_unpack("i", descriptors[: len(descriptors) // 4 * 4]):
        with suppress(OSError):
            os.close(number)
