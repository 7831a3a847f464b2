"""Folders that are written into, held open so that nobody can exchange them meanwhile.

A link of the user's own, or of root, is followed: whoever names it means where it leads.
A link of somebody else in a folder that others may write to, as /tmp, is not: it could
lead to files of ours, and what is written would replace them.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingero.errors import UsageError

_HOLD = os.O_PATH | os.O_CLOEXEC
_OTHERS_WRITE = 0o022
MOST_LINKS = 40  # as the kernel has it


@contextmanager
def held_folder(path: Path) -> Iterator[int]:
    """A handle on the folder, for *at() calls; raises OSError as opening it would."""
    at = os.open("/", _HOLD | os.O_DIRECTORY)
    parts, links = deque(path.absolute().parts[1:]), 0
    try:
        while parts:
            step = os.open(parts.popleft(), _HOLD | os.O_NOFOLLOW, dir_fd=at)
            at, before = step, at
            try:
                if stat.S_ISLNK(os.fstat(step).st_mode):
                    links += 1
                    target = _followed(path, step, before, links)
                    parts.extendleft(reversed([part for part in target.parts if part != "/"]))
                    at = os.open("/", _HOLD) if target.is_absolute() else os.dup(before)
                    os.close(step)
            finally:
                os.close(before)
        os.stat(".", dir_fd=at)  # whether it is a folder
        yield at
    finally:
        os.close(at)


def _followed(path: Path, link: int, folder: int, links: int) -> Path:
    found, around = os.fstat(link), os.fstat(folder)
    ours = (0, os.geteuid())
    # A user's own folder is that user's business, save where root would be led out of it.
    theirs = around.st_mode & _OTHERS_WRITE or (os.geteuid() == 0 and around.st_uid != 0)
    if theirs and found.st_uid not in ours:
        raise UsageError(
            f"{path} goes through a symbolic link of another user, in a folder that others can write to",
            hint="Nothing was written. Name the folder itself, or one that only you can write to.",
        )
    if links > MOST_LINKS:
        raise UsageError(f"{path} goes through too many symbolic links", hint="Name the folder itself.")
    return Path(os.readlink("", dir_fd=link))
