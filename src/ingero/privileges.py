"""Gives up what tracing does not need.

Root can do everything; tracing needs to load probes, read other processes and write its own
database. Called before there are other threads: what is given up is a thread's own, and
new threads have what the first one has. A command to be traced is not less privileged for
it: what root executes gets everything again.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import re
import resource
from collections.abc import Callable, Collection
from pathlib import Path

log = logging.getLogger(__name__)

# Name -> bit (linux/capability.h) and what for.
KEPT = {
    "CAP_CHOWN": 0,  # the database belongs to whoever called sudo
    "CAP_DAC_OVERRIDE": 1,  # and lies in their folder
    "CAP_DAC_READ_SEARCH": 2,  # libraries in other users' homes
    "CAP_FOWNER": 3,
    "CAP_SETGID": 6,  # and is written with their rights, not with ours; a command is theirs too
    "CAP_SETUID": 7,
    "CAP_KILL": 5,  # a command of another user is told to stop
    "CAP_SYS_PTRACE": 19,  # memory maps, environment and memory of traced processes
    "CAP_SYS_RESOURCE": 24,  # room for descriptors
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,  # the very file a process has mapped, whatever its name is now
}
SYS_ADMIN = 21
# Kernels before this attach by perf uprobes, which ask for CAP_SYS_ADMIN.
MULTI_SINCE = (6, 6)
NARROW = ("CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE")
VERSION_3 = 0x20080522
PR_SET_NO_NEW_PRIVS = 38
NOBODY = 65534  # the user and group that stand for no one


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Half(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def by_perf() -> bool:
    """Whether perf events will ask for CAP_SYS_ADMIN: probes that are some, or all of them on this kernel."""
    release = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    return os.environ.get("INGERO_ATTACH") == "perf" or release < MULTI_SINCE or paranoid()


def paranoid(setting: Path = Path("/proc/sys/kernel/perf_event_paranoid")) -> bool:
    """Debian's kernels know a value above those of kernel.org, and are shipped with it."""
    try:
        return int(setting.read_text()) > 2
    except (OSError, ValueError):
        return False


def wanted(held: int, perf: bool = False) -> int:
    """Of what is held, what to keep. CAP_SYS_ADMIN stands in for the narrower ones where they are missing."""
    mask = sum(1 << bit for bit in KEPT.values())
    if perf or any(not held >> KEPT[name] & 1 for name in NARROW):
        mask |= 1 << SYS_ADMIN
    return held & mask


def drop() -> None:
    """Keep what tracing needs; a kernel that refuses leaves everything as it was."""
    _keep(lambda held: wanted(held, by_perf()))


def keep_only(names: Collection[str]) -> None:
    """Keep these of what tracing needs."""
    mask = sum(1 << KEPT[name] for name in names)
    _keep(lambda held: held & mask if held & mask == mask else held & (mask | 1 << SYS_ADMIN))


def become_nobody() -> None:
    """Nothing of root is left, nor does executing bring it back. Who was not root stays who it was.

    So does a program that nobody may not read, in somebody's home, say: it could not go on.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        log.warning("cannot give up new privileges: %s", os.strerror(ctypes.get_errno()))
    if os.geteuid() == 0 and nobody_reads(Path(__file__), Path(os.__file__)):
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except OSError as error:  # in a user namespace that has no such user
            log.warning("cannot become another user: %s", error.strerror)
    keep_only(())


def nobody_reads(*files: Path) -> bool:
    try:
        os.seteuid(NOBODY)
    except OSError as error:
        log.warning("cannot become another user: %s", error.strerror)
        return False
    try:
        return all(os.access(each, os.R_OK, effective_ids=True) for each in files)
    finally:
        os.seteuid(0)


def bound(room_bytes: int, files: int | None = None) -> None:
    """This process may not grow by more than that, nor write a file."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + room_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
    }
    if files is not None:
        limits[resource.RLIMIT_NOFILE] = files
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))


def _keep(chosen: Callable[[int], int]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header, halves = _Header(VERSION_3, 0), (_Half * 2)()
    if libc.capget(ctypes.byref(header), halves):
        log.warning("cannot read our capabilities: %s", os.strerror(ctypes.get_errno()))
        return
    permitted = halves[0].permitted | halves[1].permitted << 32
    keep = chosen(permitted)
    for at, half in enumerate(halves):
        half.effective = half.permitted = keep >> 32 * at & 0xFFFFFFFF
        half.inheritable = 0
    if libc.capset(ctypes.byref(header), halves):
        log.warning("cannot give up capabilities: %s", os.strerror(ctypes.get_errno()))
        return
    log.debug("capabilities kept: %x of %x", keep, permitted)
