"""The process that reads for the agent, and the one that starts it anew.

The nursery also watches the agent: one that no longer drains is killed, which takes its probes off.

It is forked when a trace begins, before there are probes or a database; it holds nothing and does
nothing but fork readers, each from the same clean state. A reader gives up every capability and
system call it does not need, may not grow without bound, and ends with the agent, unless the kernel
holds it in a wait that cannot be ended: then it stays behind alone, with nothing open that matters to others.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np

from ingero import privileges
from ingero.agent.reading import Reading
from ingero.errors import FileFormatError
from ingero.model.layout import PYTHON_LAYOUT
from ingero.native import seccomp

ROOM_BYTES = 1 << 30  # of address space, beyond what is there at the start
MAX_ANSWER_BYTES = 1 << 20
# Of questions whose answers may be larger.
MAX_ANSWERS_BYTES = {
    "frames_at": 64 << 20, "libraries_of": 16 << 20, "long_code": 8 << 20, "handle_names": 4 << 20,
    "plan": 4 << 20, "readable": 8 << 20,
}  # fmt: skip
SILENT_S = 30.0
LOOK_S = 1.0
ANOTHER, BEAT, LAST_BEAT, TICK = b"another", b"beat", b"last", b"tick"
MAX_DESCRIPTORS = 1 << 20
LENGTH = struct.Struct("<I")
NUMBERED = struct.Struct("<Q")  # behind ANOTHER: which request this is
READER = struct.Struct("<Qi")  # the request's number, and the reader's; 0: there could be none
KEPT = ("CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE")


class ReadQuestion(msgspec.Struct, array_like=True):
    what: str
    arguments: msgspec.Raw


class ReadAnswer(msgspec.Struct, array_like=True):
    """`failed`: empty, gone, format or why; the answer is a message then."""

    failed: str
    answer: msgspec.Raw


def _encode_other(value: Any) -> Any:
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"cannot send {type(value)}")


def _decode_other(kind: type, value: Any) -> Any:
    if kind is np.void:
        return np.frombuffer(value, PYTHON_LAYOUT).copy()[0]
    raise NotImplementedError(f"cannot receive {kind}")


def _questions() -> dict[str, tuple[Any, Any]]:
    """For each: how its arguments and its answer are read."""
    found = {}
    for name, method in vars(Reading).items():
        if name.startswith("_"):
            continue
        hints = get_type_hints(method, include_extras=True)
        answer = hints.pop("return")
        arguments = tuple.__class_getitem__(tuple(hints.values()))
        found[name] = (
            msgspec.msgpack.Decoder(arguments, dec_hook=_decode_other),
            msgspec.msgpack.Decoder(answer, dec_hook=_decode_other),
        )
    return found


QUESTIONS = _questions()
encode = msgspec.msgpack.Encoder(enc_hook=_encode_other).encode


def framed(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


# --- the nursery --------------------------------------------------------------------------


def start_nursery() -> tuple[int, socket.socket]:
    """Its number, and where it is asked for readers."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            _tend(_alone_with(its))
        finally:
            os._exit(0)
    its.close()
    return pid, ours


def _alone_with(kept: socket.socket) -> socket.socket:
    """Leave everything else that the process this was forked from had open."""
    gc.freeze()  # what was the agent's is never collected here, nor its descriptors closed twice
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the agent, not before
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    end = os.dup(kept.fileno())
    for at in (0, 1):  # errors are kept, for the watchdog's one word
        os.dup2(nowhere, at)
    os.dup2(end, 3)
    os.closerange(4, MAX_DESCRIPTORS)
    os.setsid()
    return socket.socket(fileno=3)


def _tend(agent: socket.socket) -> None:
    """Fork a reader for every request, in place of the one before; until the agent is gone."""
    reader, parent = 0, os.getppid()
    watchdog = Watchdog(parent)
    agent.settimeout(LOOK_S)
    try:
        while True:
            try:
                message, ends, _, _ = socket.recv_fds(agent, 64, 1)
            except TimeoutError:
                message, ends = TICK, []
            if not message:
                return
            reader = _reaped(reader)
            watchdog.hear(message)
            if message.startswith(ANOTHER):
                _kill(reader)
                reader = _another(agent, ends)
                with suppress(OSError):  # it asks again, or is gone
                    agent.send(READER.pack(*NUMBERED.unpack(message[len(ANOTHER) :]), reader))
    finally:
        _kill(_reaped(reader))


def _another(agent: socket.socket, ends: list[int]) -> int:
    """The number of a new reader; 0 where none can be had, for want of processes or memory."""
    try:
        reader = os.fork() if ends else 0
    except OSError:
        reader = 0
    else:
        if ends and reader == 0:
            agent.close()
            _serve(socket.socket(fileno=ends[0]))
    for end in ends:
        os.close(end)
    return reader


def _kill(reader: int) -> None:
    """Not waited for: the kernel may hold it."""
    if reader:
        os.kill(reader, signal.SIGKILL)


def _reaped(reader: int) -> int:
    """Forget readers that have ended; the number of the present one, unless it is among them."""
    with suppress(ChildProcessError):
        while ended := os.waitpid(-1, os.WNOHANG)[0]:
            reader = 0 if ended == reader else reader
    return reader


class Watchdog:
    """Ends an agent that has begun to drain and does not go on; its keepers then take the probes off.

    Only time in which the watchdog itself could look counts: in a container that is paused, or a machine
    that is stopped, both stand still.
    """

    def __init__(self, agent: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._agent = agent
        self._clock = clock
        self._limit_s = float(os.environ.get("INGERO_WATCHDOG_S") or SILENT_S)
        self._silent_s: float | None = None  # None: it is not watched
        self._looked = clock()

    def hear(self, message: bytes) -> None:
        now = self._clock()
        since_s, self._looked = now - self._looked, now
        if message == BEAT:
            self._silent_s = 0.0
        elif message == LAST_BEAT:
            self._silent_s = None
        elif self._silent_s is not None:
            self._silent_s += since_s
            # Job control has stopped it, or we stood still, too: it drains again when it goes on.
            if since_s > 2 * LOOK_S or _is_stopped(self._agent):
                self._silent_s = 0.0
            elif self._silent_s > self._limit_s and os.getppid() == self._agent:
                self._end()

    def _end(self) -> None:
        self._silent_s = None
        with suppress(ProcessLookupError):
            os.kill(self._agent, signal.SIGKILL)
        _say(f"ingero: ended by its watchdog: nothing drained for {self._limit_s:g} s\n")


def _say(text: str) -> None:
    """Unless nobody reads it: a pipe that is full would hold up whoever writes."""
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, text.encode())


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:  # it is gone
        return False
    return state in (b"T", b"t")


# --- a reader -------------------------------------------------------------------------------


def _serve(asker: socket.socket) -> None:
    try:
        os.dup2(0, 2)
        privileges.keep_only(KEPT)
        privileges.bound(ROOM_BYTES, files=64)
        seccomp.only_reading()
        reading = Reading()
        while True:
            message = receive(asker)
            if message is None:
                return
            asker.sendall(framed(_answer(reading, message)))
    finally:
        os._exit(0)


def receive(asker: socket.socket) -> bytes | None:
    head = _exactly(asker, LENGTH.size)
    return _exactly(asker, LENGTH.unpack(head)[0]) if head else None


def _exactly(asker: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = asker.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def _answer(reading: Reading, message: bytes) -> bytes:
    try:
        asked = msgspec.msgpack.decode(message, type=ReadQuestion)
        arguments = QUESTIONS[asked.what][0].decode(asked.arguments)
        return _told("", getattr(reading, asked.what)(*arguments))
    except (ProcessLookupError, FileNotFoundError):
        return _told("gone", "")
    except FileFormatError as error:
        return _told("format", [error.message, error.hint or ""])
    except Exception as error:  # whatever is wrong with what was read, the next question is another one
        return _told(f"{type(error).__name__}: {error}"[:400], "")


def _told(failed: str, answer: Any) -> bytes:
    return encode(ReadAnswer(failed, msgspec.Raw(encode(answer))))
