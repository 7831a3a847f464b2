"""With whose rights the calling thread touches files: the kernel keeps that apart for each thread.

setfsuid and setfsgid are meant for this; the groups are set with the bare system call,
because the C library's function changes all threads. Going from root to a user also takes
away the capabilities that override file permissions, and coming back returns them.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
_NOBODY = -1  # not a user: asking for it changes nothing and tells who it is


def become(uid: int, gid: int, groups: Sequence[int]) -> None:
    """OSError where the kernel refuses; the thread then is what it was or less."""
    libc = ctypes.CDLL(None, use_errno=True)
    _set_groups(libc, groups)
    libc.setfsgid(gid)
    libc.setfsuid(uid)
    if (libc.setfsuid(_NOBODY), libc.setfsgid(_NOBODY)) != (uid, gid):
        raise PermissionError(1, f"may not act as user {uid}")


def _set_groups(libc: ctypes.CDLL, groups: Sequence[int]) -> None:
    array = (ctypes.c_uint32 * max(1, len(groups)))(*groups)
    if libc.syscall(_SETGROUPS[platform.machine()], len(groups), array):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
