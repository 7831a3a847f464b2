"""Questions to the reader process, and what becomes of one that does not answer."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ingero.agent import reader_process as readers_process
from ingero.agent import readers as agent_readers
from ingero.agent.frames import AskedSymbols
from ingero.agent.reader_process import BEAT, TICK, Watchdog
from ingero.agent.readers import Readers, UnreadError
from ingero.agent.reading import Reading
from ingero.attach.probes import ROWS
from ingero.discover.libraries import Library
from ingero.errors import FileFormatError
from ingero.native import seccomp

from .fakes import Here


@pytest.fixture
def readers() -> Iterator[Readers]:
    made = Readers()
    yield made
    made.close()


def test_an_answer_is_what_it_would_be_without_a_process_between(readers: Readers) -> None:
    me = os.getpid()
    there, here = readers.ask(Reading.python, me, True), Here().ask(Reading.python, me, True)
    assert there.runtime == here.runtime
    assert there.frames is not None
    assert here.frames is not None
    assert there.frames.version == here.frames.version
    assert readers.ask(Reading.process, me) == Here().ask(Reading.process, me)
    assert readers.ask(Reading.libraries_of, me) == Here().ask(Reading.libraries_of, me)


def test_a_process_that_is_gone_and_a_file_that_is_none_are_told_as_such(
    readers: Readers, tmp_path: Path
) -> None:
    with pytest.raises(ProcessLookupError):
        readers.ask(Reading.python, 2**22 + 1, True)
    (tmp_path / "x").write_text("no library")
    with pytest.raises(FileFormatError, match="too short"):
        readers.ask(Reading.plan, str(tmp_path / "x"), "driver", [], False)
    assert readers.losses({}) == {}  # both are answers


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_reader_that_does_not_answer_is_replaced_and_counted(readers: Readers, number: int) -> None:
    assert readers.ask(Reading.owner, "/") == 0
    first, drained = readers._pid, []
    readers.idle = lambda: drained.append(1)
    os.kill(first, number)
    with pytest.raises(UnreadError, match="could not be read"):
        readers.ask(Reading.environment, os.getpid())
    assert drained or number == signal.SIGKILL  # nobody waits for a dead one, but its end may take a slice
    with pytest.raises(UnreadError):  # whoever held one up is avoided
        readers.ask(Reading.process, os.getpid())
    assert readers.ask(Reading.owner, "/") == 0
    assert readers._pid != first
    warnings: dict[str, str] = {}
    assert readers.losses(warnings) == {"unread": 2}
    assert f"process {os.getpid()}" in warnings["unread"]
    assert readers.losses(warnings) == {}


def test_a_reader_that_does_what_it_should_not_is_ended_replaced_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def taken_over(reading: Reading, path: str) -> int:
        if path == "/":
            return 0
        return os.execv("/bin/true", ["true"]) if path == "run" else socket.socket().fileno()

    monkeypatch.setattr(Reading, "owner", taken_over)  # before the reader is forked
    monkeypatch.setattr(Reading.owner, "__name__", "owner")
    readers = Readers()
    try:
        for path in ("run", "connect"):
            assert readers.ask(Reading.owner, "/") == 0
            first = readers._pid
            with pytest.raises(UnreadError):
                readers.ask(Reading.owner, path)
            assert readers.ask(Reading.owner, "/") == 0
            assert readers._pid != first
        assert readers.losses({}) == {"unread": 2}
    finally:
        readers.close()


LIBRARY = [each.name for each in dataclasses.fields(Library)]


def nested() -> msgspec.Raw:
    return msgspec.Raw(b"\x91" * 100_000 + b"\xc0")


def test_names_are_made_readable_by_a_reader_and_stay_as_they_are_where_it_could_not(
    readers: Readers,
) -> None:
    symbols, me = AskedSymbols(readers), os.getpid()
    assert symbols.readable(me, [b"plain", b"_Z1av", b"x\xff"]) == ["plain", "a()", "x\ufffd"]
    readers.ask(Reading.owner, "/")
    os.kill(readers._pid, signal.SIGSTOP)
    assert symbols.readable(me, [b"plain", b"_Z1av"]) == ["plain", "_Z1av"]
    assert readers.losses({}) == {"unread": 1}


SEGMENTS = ["/proc/1/map_files/a-b", "/a/libcuda.so.1", 1, 2, "driver", [[-1, 2, 3]], False]
HOSTILE = [
    (Reading.owner, "no number"),
    (Reading.owner, {"a": 1}),
    (Reading.owner, [1, 2]),
    (Reading.owner, -1),
    (Reading.owner, 1 << 32),
    (Reading.owner, nested),
    (Reading.owner, lambda: bytes(readers_process.MAX_ANSWER_BYTES)),
    (Reading.libraries_of, [dict(zip(LIBRARY, SEGMENTS, strict=True))]),
    (Reading.libraries_of, [dict(zip(LIBRARY, ["a\0b", *SEGMENTS[1:]], strict=True))]),
    (Reading.plan, {"points": [[4096, 0]]}),
    (Reading.plan, {"points": [[4096, -1]]}),
    (Reading.plan, {"points": [[4096, len(ROWS) + 1]]}),
    (Reading.plan, {"points": [[-4096, 1]]}),
    (Reading.frames_at, [["f", "m", -1]]),
    (Reading.communicator, {"version": 1, "hash_at": 1 << 32, "rank_at": 0}),
    (Reading.handle_names, {-1: b"name"}),
    (Reading.python, {"runtime": None, "frames": {"layout": b"short"}}),
]
ROOT_INODE = Path("/").stat().st_ino  # 2 on ext4, not on others
ARGUMENTS = {"frames_at": (b"", 0), "plan": ("driver", [], False), "handle_names": ([],), "python": (True,)}


@pytest.mark.parametrize(("question", "answer"), HOSTILE)
def test_an_answer_that_makes_no_sense_is_a_loss_and_no_disaster(
    question: Any, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = question.__name__

    def lying(*_: object) -> object:
        return answer() if callable(answer) else answer

    lying.__name__ = name
    monkeypatch.setattr(Reading, name, lying)
    readers = Readers()
    try:
        about = 1 if name in ("libraries_of", "frames_at", "handle_names", "python") else "lie"
        with pytest.raises(UnreadError, match="makes no sense"):
            readers.ask(getattr(Reading, name), about, *ARGUMENTS.get(name, ()))
        assert readers.ask(Reading.kind_at, b"/", (1, ROOT_INODE)) is None
        assert readers.losses({}) == {"unread": 1}
    finally:
        readers.close()


@pytest.mark.parametrize("wrong", [ProcessLookupError, FileFormatError("no library")])
def test_what_a_question_never_says_is_a_loss(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lying(*_: object) -> object:
        raise wrong

    lying.__name__ = "libraries_of"
    monkeypatch.setattr(Reading, "libraries_of", lying)
    readers = Readers()
    try:
        with pytest.raises(UnreadError):
            readers.ask(Reading.libraries_of, 1)
    finally:
        readers.close()


def test_a_reader_is_bounded_and_holds_nothing_of_ours(readers: Readers) -> None:
    held = os.open(os.devnull, os.O_RDONLY)
    readers.ask(Reading.owner, "/")
    os.close(held)
    limits = Path(f"/proc/{readers._pid}/limits").read_text()
    assert re.search(r"Max address space +\d+ ", limits)
    assert re.search(r"Max file size +0 ", limits)
    opened = [str(each.readlink()) for each in Path(f"/proc/{readers._pid}/fd").iterdir()]
    assert [each for each in opened if not each.startswith("socket:")] == [os.devnull] * 3
    status = Path(f"/proc/{readers._pid}/status").read_text()
    assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE)
    (kept,) = re.findall(r"^CapEff:\t(\w+)$", status, re.MULTILINE)
    assert int(kept, 16) & ~(1 << 2 | 1 << 19 | 1 << 40 | 1 << 21) == 0


def test_where_no_process_can_be_had_a_question_is_lost_and_the_next_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork, refused = os.fork, [0]
    tending = os.getpid()

    def sometimes() -> int:
        if os.getpid() != tending:  # in the nursery
            refused[0] += 1
            if refused[0] == 1:
                raise BlockingIOError(errno.EAGAIN, "fork")
        return fork()

    monkeypatch.setattr(os, "fork", sometimes)
    readers = Readers()
    try:
        with pytest.raises(UnreadError):
            readers.ask(Reading.owner, "/proc")
        assert readers.ask(Reading.owner, "/") == 0
        warnings: dict[str, str] = {}
        assert readers.losses(warnings) == {"unread": 1}
        assert "readers" not in warnings
    finally:
        readers.close()


def test_rings_are_emptied_while_a_reader_is_waited_for_and_a_late_one_is_not_taken_for_the_next(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[int] = []
    readers.idle = lambda: drained.append(1)
    monkeypatch.setattr(agent_readers, "BUSY_S", 0.5)
    os.kill(readers._nursery, signal.SIGSTOP)
    with pytest.raises(UnreadError):
        readers.ask(Reading.owner, "/proc")
    began = time.monotonic()
    with pytest.raises(UnreadError, match="the process that reads it is not running"):
        readers.ask(Reading.owner, "/dev")
    assert time.monotonic() - began < 0.5  # not waited for once more by every question
    os.kill(readers._nursery, signal.SIGCONT)
    monkeypatch.undo()
    time.sleep(0.6)
    assert drained
    assert readers.ask(Reading.owner, "/") == 0
    assert Path(f"/proc/{readers._pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    assert readers.cpu_ns() > 0


def test_many_quick_questions_do_not_keep_the_rings_from_being_emptied_nor_the_watchdog_waiting(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[int] = []
    beats: list[float] = []
    readers.idle = lambda: drained.append(1)
    monkeypatch.setattr(readers, "beat", lambda: beats.append(1))
    readers.ask(Reading.owner, "/")
    assert not beats  # nothing was drained yet: who is still attaching is not watched
    readers._next_beat = 1.0
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        readers.ask(Reading.owner, "/")
    assert len(drained) >= 3
    assert len(beats) >= 3
    readers.last_beat()
    beats.clear()
    time.sleep(0.02)
    readers.ask(Reading.owner, "/")
    assert not beats


def test_that_nobody_makes_readers_any_more_is_said(readers: Readers) -> None:
    os.kill(readers._nursery, signal.SIGKILL)
    os.waitid(os.P_PID, readers._nursery, os.WEXITED | os.WNOWAIT)
    with pytest.raises(UnreadError):
        readers.ask(Reading.owner, "/")
    warnings: dict[str, str] = {}
    readers.losses(warnings)
    assert warnings["readers"] == agent_readers.ENDED


@pytest.mark.parametrize("had", [True, False])
def test_a_filter_that_cannot_be_had_is_said(had: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not had:
        monkeypatch.setattr(seccomp, "PROCESSORS", {})
    readers = Readers()
    try:
        readers.ask(Reading.owner, "/")
        warnings: dict[str, str] = {}
        readers.losses(warnings)
        assert warnings == ({} if had else {"filter": agent_readers.UNFILTERED})
    finally:
        readers.close()


def test_readers_end_with_whoever_asks(readers: Readers) -> None:
    readers.ask(Reading.owner, "/")
    reader, nursery = readers._pid, readers._nursery
    readers.close()
    for _ in range(500):
        if not any(Path(f"/proc/{pid}").exists() for pid in (reader, nursery)):
            return
        os.sched_yield()
        signal.sigtimedwait([], 0.01)
    raise AssertionError("a reader is still there")


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """Stands for an agent that does not drain."""
    monkeypatch.setenv("INGERO_WATCHDOG_S", "0")
    with subprocess.Popen(["sleep", "60"]) as made:
        monkeypatch.setattr(os, "getppid", lambda: made.pid)
        yield made
        made.kill()


def test_the_watchdog_ends_what_was_heard_and_is_silent(sleeper: subprocess.Popen[bytes]) -> None:
    watchdog = Watchdog(sleeper.pid)
    watchdog.hear(TICK)
    assert sleeper.poll() is None  # it never drained: it may still be attaching
    watchdog.hear(BEAT)
    watchdog.hear(TICK)
    assert sleeper.wait(10) == -signal.SIGKILL


def test_the_watchdog_does_not_count_time_in_which_it_stood_still_itself(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that was paused: the first thing that happens afterwards may be its look."""
    monkeypatch.setenv("INGERO_WATCHDOG_S", "3.5")
    now = [100.0]
    watchdog = Watchdog(sleeper.pid, lambda: now[0])

    def look_after(seconds: float) -> None:
        now[0] += seconds
        watchdog.hear(TICK)

    watchdog.hear(BEAT)
    look_after(600)
    for _ in range(3):
        look_after(1)
    assert sleeper.poll() is None
    look_after(1)
    assert sleeper.wait(10) == -signal.SIGKILL


def test_the_watchdog_gives_an_agent_that_is_continued_all_its_time(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGERO_WATCHDOG_S", "3.5")
    now = [100.0]
    watchdog = Watchdog(sleeper.pid, lambda: now[0])
    watchdog.hear(BEAT)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    for _ in range(3):
        now[0] += 1
        watchdog.hear(TICK)
    sleeper.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED)
    now[0] += 1
    watchdog.hear(TICK)
    assert sleeper.poll() is None


@pytest.mark.parametrize("how", ["broken", "full"])
def test_the_watchdog_ends_it_whatever_becomes_of_its_word(
    sleeper: subprocess.Popen[bytes], how: str
) -> None:
    reading, writing = os.pipe()
    if how == "broken":
        os.close(reading)
    else:
        os.set_blocking(writing, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        watchdog = Watchdog(sleeper.pid)
        watchdog.hear(BEAT)
        watchdog.hear(TICK)
    finally:
        os.dup2(kept, 2)
        for each in (kept, writing, *([reading] if how == "full" else [])):
            os.close(each)
    assert sleeper.wait(10) == -signal.SIGKILL


def test_the_watchdog_waits_while_job_control_has_stopped_the_agent(sleeper: subprocess.Popen[bytes]) -> None:
    watchdog = Watchdog(sleeper.pid)
    watchdog.hear(BEAT)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    watchdog.hear(TICK)
    watchdog.hear(TICK)
    assert sleeper.poll() is None
    sleeper.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED)
    watchdog.hear(TICK)
    assert sleeper.wait(10) == -signal.SIGKILL


CROWDED = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mmap.restype = ctypes.c_void_p
with open(sys.argv[1], "rb") as file:  # readable and executable, private
    made = {libc.mmap(None, 4096, 5, 2, file.fileno(), 0) for _ in range(60_000)}
print("ready", len(made), flush=True)
sys.stdin.read()
"""


def test_sixty_thousand_mappings_are_read_while_the_rings_are_emptied(
    readers: Readers, tmp_path: Path
) -> None:
    file = tmp_path / "libcuda.so.1"
    file.write_bytes(bytes(4096))
    command = [sys.executable, "-I", "-S", "-c", CROWDED, str(file)]
    drained: list[int] = []
    readers.idle = lambda: drained.append(1)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as crowded:
        assert crowded.stdout is not None
        assert crowded.stdout.readline() == b"ready 60000\n"
        found = readers.ask(Reading.libraries_of, crowded.pid)
        readers.ask(Reading.look_at_code, crowded.pid)
        crowded.kill()
    assert len(found) <= 1  # one file, however often
    assert drained
    assert readers.losses({}) == {}
