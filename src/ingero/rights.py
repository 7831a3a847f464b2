"""With whose rights a file is made: root writes as root only where nobody else can change the way there.

A path is looked at before it is used, and between the two somebody who owns a folder on
it can put a link there. So nothing that is seen on the way is relied on: where a folder
belongs to a user, the work is done with that user's rights, and a link leads to nothing
the user could not have reached without us. SQLite opens files by name, beside the
database too and later on, so that a folder held open would not be enough.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ingero.errors import StoreError

_HOLD = os.O_PATH | os.O_CLOEXEC
MOST_LINKS = 40  # as the kernel has it


@dataclass(frozen=True)
class User:
    """Somebody, as the kernel knows them."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def invoking_user() -> User | None:
    """Who called sudo; None when nobody did."""
    if os.geteuid() != 0:
        return None
    try:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return user(uid, gid) if uid > 0 and gid >= 0 else None


def user(uid: int, gid: int) -> User:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return User(uid, gid, (gid,))
    return User(uid, gid, tuple(os.getgrouplist(name, gid)))


def whose(folder: Path) -> User | None:
    """With whose rights to write there; None is our own, and always so where we are not root."""
    if os.geteuid() != 0:
        return None
    caller = invoking_user()
    steps = list(_steps(folder))
    for at, about in enumerate(steps, start=1):
        if about.st_uid != 0:
            return caller or user(about.st_uid, about.st_gid)
        if not _others_write(about):
            continue
        last, sticky = at == len(steps), bool(about.st_mode & stat.S_ISVTX)
        if caller and (last or not sticky):
            return caller
        if not last and not sticky:
            raise StoreError(
                f"{folder} is in a folder that any user can change, so root does not write there",
                hint="Choose a folder that only root can change, or remove other users' write access.",
            )
    return None


@contextmanager
def acting_as(who: User | None) -> Iterator[None]:
    """What this thread does with files meanwhile, it does with that user's rights."""
    if who is None or who.uid == 0:
        yield
        return
    from ingero.native import thread_identity

    before = os.geteuid(), os.getegid(), os.getgroups()
    try:
        thread_identity.become(who.uid, who.gid, who.groups)
        yield
    finally:
        thread_identity.become(*before)


def _others_write(about: os.stat_result) -> bool:
    by_group = about.st_mode & 0o020 and about.st_gid != 0
    return stat.S_ISDIR(about.st_mode) and bool(about.st_mode & 0o002 or by_group)


def _steps(folder: Path) -> Iterator[os.stat_result]:
    """The folders and links one passes on the way, as far as there are any."""
    at, links = os.open("/", _HOLD), 0
    parts = deque(folder.absolute().parts[1:])
    try:
        yield os.fstat(at)
        while parts:
            try:
                step = os.open(parts.popleft(), _HOLD | os.O_NOFOLLOW, dir_fd=at)
            except OSError:  # not there yet, or not for root: whoever opens it says so
                return
            about = os.fstat(step)
            yield about
            if stat.S_ISLNK(about.st_mode):
                target = Path(os.readlink("", dir_fd=step))
                parts.extendleft(reversed([part for part in target.parts if part != "/"]))
                os.close(step)
                step = os.open("/", _HOLD) if target.is_absolute() else os.dup(at)
                links += 1
            os.close(at)
            at = step
            if links > MOST_LINKS:
                return
    finally:
        os.close(at)
