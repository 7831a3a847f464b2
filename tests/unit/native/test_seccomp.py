"""Processes that may only read: what else they try is refused or ends them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import re
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero.native import seccomp
from ingero.native.demangle import demangle
from tests.unit.native.test_demangle import bomb

HERE = seccomp.PROCESSORS.get(platform.machine())
pytestmark = pytest.mark.skipif(HERE is None, reason="no filter for this processor")
DONE, REFUSED = 7, 8


def outcome(act: Callable[[], object]) -> int:
    """What became of a process under the filter: its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            assert seccomp.only_reading()
            act()
            os._exit(DONE)
        except PermissionError:
            os._exit(REFUSED)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def call(name: str, *arguments: int) -> None:
    assert HERE is not None
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(HERE.calls[name], *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


@pytest.mark.parametrize("name", seccomp.ENDED)
def test_what_only_an_intruder_does_ends_the_process(name: str) -> None:
    assert outcome(lambda: call(name, 0, 0, 0, 0, 0)) == -signal.SIGSYS


def test_neither_a_program_nor_a_connection_can_be_started() -> None:
    assert outcome(lambda: os.execv("/bin/true", ["true"])) == -signal.SIGSYS
    assert outcome(socket.socket) == -signal.SIGSYS
    thread = 0x3D0F00  # CLONE_VM and all that a thread has
    assert outcome(lambda: call("clone", thread, 0, 0, 0, 0)) == -signal.SIGSYS


def test_a_copy_is_under_the_same_filter() -> None:
    def copied() -> None:
        child = os.fork()
        if child == 0:
            try:
                socket.socket()
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSYS

    assert outcome(copied) == DONE


def test_names_are_made_readable_under_it_and_limits_of_others_are_left_alone() -> None:
    def readable() -> None:
        assert demangle([b"_ZN3foo3barEv", bomb(30), b"_ZN3foo3barEv"])[::2] == ["foo::bar()"] * 2

    assert outcome(readable) == DONE
    parent = os.getpid()
    assert outcome(lambda: resource.prlimit(parent, resource.RLIMIT_CPU, (1, 1))) == REFUSED


def test_files_are_read_and_neither_written_nor_removed(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("kept")
    assert outcome(path.read_text) == DONE
    assert outcome(lambda: list(tmp_path.iterdir())) == DONE
    for act in (
        lambda: path.write_text("changed"),
        lambda: path.open("r+").close(),
        lambda: (tmp_path / "new").touch(),
        path.unlink,
        lambda: path.rename(tmp_path / "other"),
        lambda: path.chmod(0o777),
        lambda: os.truncate(path, 0),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
    ):
        assert outcome(act) == REFUSED
    assert path.read_text() == "kept"
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_a_way_to_open_files_that_hides_what_for_is_said_not_to_exist(tmp_path: Path) -> None:
    how = (ctypes.c_uint64 * 3)(os.O_WRONLY | os.O_CREAT, 0o600, 0)

    def hidden() -> None:
        with pytest.raises(OSError, match="openat2") as refused:
            call("openat2", ctypes.c_long(-100).value, 0, ctypes.addressof(how), ctypes.sizeof(how))
        assert refused.value.errno == errno.ENOSYS

    assert outcome(hidden) == DONE
    assert not list(tmp_path.iterdir())


def test_a_descriptor_is_looked_at_and_copied_and_never_sends_signals() -> None:
    def looked_at() -> None:
        copy = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
        flags = fcntl.fcntl(copy, fcntl.F_GETFD)
        fcntl.fcntl(copy, fcntl.F_SETFD, flags)
        fcntl.fcntl(copy, fcntl.F_GETFL)
        os.close(copy)

    parent = os.getpid()
    assert outcome(looked_at) == DONE
    for number, value in (
        (fcntl.F_SETOWN, parent),
        (fcntl.F_SETSIG, signal.SIGKILL),
        (fcntl.F_SETFL, os.O_NONBLOCK | fcntl.FASYNC),
        (fcntl.F_NOTIFY, fcntl.DN_ACCESS),
        (fcntl.F_SETLEASE, fcntl.F_RDLCK),
        (fcntl.F_DUPFD, 3),
    ):
        assert outcome(lambda number=number, value=value: fcntl.fcntl(0, number, value)) == REFUSED


@pytest.mark.parametrize("processor", seccomp.PROCESSORS.values(), ids=seccomp.PROCESSORS)
def test_every_name_has_a_number_on_every_processor(processor: seccomp.Processor) -> None:
    names = {*seccomp.ALLOWED, *seccomp.ENDED, *seccomp.MISSING, *(each[0] for each in seccomp.BY_ARGUMENT)}
    assert names <= set(processor.calls)
    assert len(set(processor.calls.values())) == len(processor.calls)


@pytest.mark.parametrize(
    ("header", "processor"),
    [("x86_64-linux-gnu/asm/unistd_64.h", seccomp.X86_64), ("asm-generic/unistd.h", seccomp.ARM64)],
)
def test_numbers_are_those_of_the_kernels_headers(header: str, processor: seccomp.Processor) -> None:
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip(f"no {path} here")
    found = re.findall(r"^#define __NR(?:3264)?_(\w+) (\d+)$", path.read_text(), re.M)
    told = {("newfstatat" if name == "fstatat" else name): int(number) for name, number in found}
    assert {name: told.get(name) for name in processor.calls} == processor.calls
