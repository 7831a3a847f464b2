"""Asking the reader process, never for longer than it may take.

While it works the rings are emptied, so nothing is lost by waiting. A reader that is held up (by a page or
a file that never comes) is replaced; whoever held it up is not asked about again for a while, longer each
time, and everything that was not read is counted and said.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import msgspec

from ingero.agent.patience import HELD_UP_S, About, Patience
from ingero.agent.reader_process import (
    ANOTHER,
    BEAT,
    LAST_BEAT,
    LENGTH,
    MAX_ANSWER_BYTES,
    MAX_ANSWERS_BYTES,
    NUMBERED,
    QUESTIONS,
    READER,
    ReadAnswer,
    encode,
    framed,
    start_nursery,
)
from ingero.agent.reading import Reading
from ingero.errors import FileFormatError
from ingero.units import clean

SLICE_MS = 10
BUSY_S = 10.0  # a large library's symbols take a second
LOSS = "unread"
NO_READER = "the process that reads it is not running"
NO_SENSE = "the answer makes no sense"
# Questions whose callers know what to do when what is read is gone, or when the file is no library.
MAY_BE_GONE = {"python", "long_code", "frames_at", "handle_names", "look_at_code"}
MAY_BE_NO_FILE = {"plan"}
UNFILTERED = (
    "the process that reads other programs runs without a system-call filter:"
    " this kernel or processor has none"
)
ENDED = "the process that reads other programs has ended: nothing more is read of them, and no watchdog runs"

P = ParamSpec("P")
T = TypeVar("T")


class UnreadError(Exception):
    """No answer: it took too long, or the reader could not."""


class Asking(Protocol):
    def ask(self, what: Callable[Concatenate[Reading, P], T], *args: P.args, **_: P.kwargs) -> T: ...


class Readers:
    """The one reader of a trace, and its successors."""

    def __init__(self) -> None:
        self._nursery, self._orders = start_nursery()
        self._orders.setblocking(False)
        self._requests = 0
        self._ended = False  # the nursery is gone
        self._not_before = 0.0  # it did not answer lately
        self._unfiltered: bool | None = None  # not known before the first answer
        self._reader: socket.socket | None = None
        self._pid = 0
        self.idle: Callable[[], None] = lambda: None  # empties the rings: while a reader works, and between
        self._rested = 0.0
        self._patience = Patience()
        self._unread = 0
        self._why = ""
        self.replaced = 0
        self.pids: set[int] = set()  # the last few readers
        self._ended_cpu_ns = 0
        self._next_beat = 0.0

    def ask(self, what: Callable[Concatenate[Reading, P], T], *args: P.args, **_: P.kwargs) -> T:
        """The first argument says what it is about: a process, or a file."""
        if time.monotonic() - self._rested > SLICE_MS / 1000:  # many quick answers take their time, too
            self._rest()
        name = what.__name__
        about = args[0] if isinstance(args[0], int | str | bytes) else name
        if self._patience.avoids(about):
            raise self._not_read(about)
        try:
            answered, answer = self._exchange(name, about, framed(encode([name, args])))
        except UnreadError as error:
            raise self._not_read(about, *error.args) from None
        if answered == "gone" and name in MAY_BE_GONE:
            raise ProcessLookupError(about)
        if answered == "format" and name in MAY_BE_NO_FILE:
            raise FileFormatError(clean(answer[0], 400), hint=clean(answer[1], 400))
        if answered:
            raise self._not_read(about, answered)
        self._patience.forgive(about)
        return cast(T, answer)

    def _rest(self) -> None:
        """The rings are emptied: while it does that, an agent that is busy with many processes is alive."""
        self.idle()
        self._rested = time.monotonic()
        if self._next_beat:
            self.beat()

    # --- what was not read -------------------------------------------------------------

    def _not_read(self, about: object, why: str = "reading it does not end") -> UnreadError:
        self._unread += 1
        named = f"process {about}" if isinstance(about, int) else clean(str(about), 80)
        self._why = f"{named} could not be read: {clean(why, 200)}"
        return UnreadError(self._why)

    def losses(self, warnings: dict[str, str]) -> dict[str, int]:
        """Questions without an answer since the last time."""
        unread, self._unread = self._unread, 0
        if self._why:
            warnings[LOSS] = self._why
        if self._unfiltered:
            warnings["filter"] = UNFILTERED
        if self._ended:
            warnings["readers"] = ENDED
        return {LOSS: unread} if unread else {}

    # --- the conversation ----------------------------------------------------------------

    def _exchange(self, name: str, about: About, message: bytes) -> tuple[str, Any]:
        """Why there is no answer, and the answer; UnreadError where nothing was said, or no sense."""
        reader = self._reader or self._new()
        watch = _Watch(self._pid, lambda: self._patience.of(about))
        try:
            most = MAX_ANSWERS_BYTES.get(name, MAX_ANSWER_BYTES)
            answer = _understood(name, self._talk(reader, message, watch, most))
            if self._unfiltered is None:
                self._unfiltered = _is_unfiltered(self._pid)
            return answer
        except (OSError, UnreadError) as error:
            self._give_up()
            self._patience.avoid(about, watch.patience_s)
            raise UnreadError(*error.args if isinstance(error, UnreadError) else ()) from error
        finally:
            self._patience.spend(about, watch.held_up_s)

    def _talk(self, reader: socket.socket, message: bytes, watch: _Watch, most: int) -> bytes:
        ready, rest, answer, wanted = select.poll(), memoryview(message), bytearray(), LENGTH.size
        while len(answer) < wanted:
            ready.register(reader, select.POLLOUT if rest else select.POLLIN)
            if not ready.poll(SLICE_MS):
                self._rest()
                watch.look()
            elif rest:
                rest = rest[reader.send(rest) :]
            else:
                part = reader.recv(1 << 20)
                if not part:
                    raise UnreadError
                answer += part
                if len(answer) >= LENGTH.size:
                    wanted = LENGTH.size + LENGTH.unpack_from(answer)[0]
                if wanted > most:
                    raise UnreadError(NO_SENSE)
        return bytes(answer[LENGTH.size :])

    def _new(self) -> socket.socket:
        """A fresh reader; UnreadError where even that is not to be had."""
        if time.monotonic() < self._not_before:
            raise UnreadError(NO_READER)
        ours, its = socket.socketpair()
        self._requests += 1
        try:
            asked = ANOTHER + NUMBERED.pack(self._requests)
            socket.send_fds(self._orders, [asked], [its.fileno()])
            number = self._numbered()
        except (OSError, UnreadError) as error:
            ours.close()
            self._ended = self._ended or isinstance(error, ConnectionError)
            raise UnreadError(NO_READER) from error
        finally:
            its.close()
        ours.setblocking(False)
        self._reader, self._pid = ours, number
        self.replaced += 1
        self.pids = {*sorted(self.pids)[-15:], self._pid}
        return ours

    def _numbered(self) -> int:
        """The number of the reader just asked for; what is still said of earlier ones is not meant."""
        coming, until = select.poll(), time.monotonic() + BUSY_S
        coming.register(self._orders, select.POLLIN)
        while time.monotonic() < until:
            if not coming.poll(SLICE_MS):
                self._rest()
                continue
            told = self._orders.recv(READER.size)
            if len(told) < READER.size:
                raise BrokenPipeError
            request, reader = READER.unpack(told)
            if request == self._requests and reader:
                return int(reader)
            if request == self._requests:
                raise UnreadError(NO_READER)
        self._not_before = time.monotonic() + BUSY_S
        raise UnreadError(NO_READER)

    def _give_up(self) -> None:
        """On this reader; the next question gets another, which ends it."""
        if self._reader:
            self._ended_cpu_ns += self._present_cpu_ns()
            self._reader.close()
            self._reader = None

    # --- the agent's own duties ------------------------------------------------------------

    def beat(self) -> None:
        """The loop drains: from the first time on, the watchdog expects to hear it again."""
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + 1
            with suppress(OSError):
                self._orders.send(BEAT)

    def last_beat(self) -> None:
        """Taking probes off may take its time."""
        self._next_beat = 0.0
        with suppress(OSError):
            self._orders.send(LAST_BEAT)

    def cpu_ns(self) -> int:
        """What reading has cost so far."""
        return self._ended_cpu_ns + (self._present_cpu_ns() if self._reader else 0)

    def _present_cpu_ns(self) -> int:
        with suppress(OSError):
            return time.clock_gettime_ns(~self._pid << 3 | 2)  # the CPU clock of a process
        return 0

    def close(self) -> None:
        self._give_up()
        self._orders.close()
        with suppress(ChildProcessError):
            for _ in range(100):  # it has nothing to wait for
                if os.waitpid(self._nursery, os.WNOHANG)[0]:
                    return
                time.sleep(0.01)
            os.kill(self._nursery, signal.SIGKILL)


def _understood(name: str, message: bytes) -> tuple[str, Any]:
    """Whoever read something hostile may say anything: whatever goes wrong here, it made no sense."""
    try:
        answered = msgspec.msgpack.decode(message, type=ReadAnswer)
        if answered.failed == "format":
            return answered.failed, msgspec.msgpack.decode(answered.answer, type=tuple[str, str])
        if answered.failed:
            return answered.failed, None
        return "", QUESTIONS[name][1].decode(answered.answer)
    except Exception as error:
        raise UnreadError(NO_SENSE) from error


def _is_unfiltered(pid: int) -> bool | None:
    """The kernel's word, not the reader's; None: it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return re.search(r"^Seccomp:\s*2$", status, re.MULTILINE) is None


class _Watch:
    """How long a reader has been held up, and how long it has been busy."""

    def __init__(self, pid: int, patience: Callable[[], float]) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._patience = patience
        self.patience_s = HELD_UP_S
        self._began = self._last = time.monotonic()
        self.held_up_s = 0.0

    def look(self) -> None:
        """Once a slice; UnreadError when it has lasted too long."""
        now = time.monotonic()
        state = self._stat.read_bytes().rpartition(b")")[2].split()[0]
        if state != b"R":  # waiting for a core is nobody's fault
            if not self.held_up_s:  # whose fault it is need not be known of quick answers
                self.patience_s = self._patience()
            self.held_up_s += now - self._last
        self._last = now
        if self.held_up_s > self.patience_s or now - self._began > BUSY_S:
            raise UnreadError
