"""Keys and tokens on disk: private to their owner, written whole or not at all.

What the user names may be a link (Kubernetes mounts secrets so); what we make
ourselves never follows one.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ingero import rights
from ingero.errors import StoreError, UsageError

MAX_BYTES = 1 << 16
_OTHERS = 0o027  # readable or writable by everybody, writable by the group


@dataclass(frozen=True)
class Folder:
    """Where a server keeps its own secrets; `owner` is (uid, gid) when that is somebody else than we."""

    path: Path
    owner: tuple[int, int] | None = None


def read_public(path: Path, what: str) -> bytes:
    """The contents of a file the user named."""
    return _read(path, what, private=False)


def read_private(path: Path, what: str) -> bytes:
    """The same for a secret: refused when others could have read or changed it."""
    return _read(path, what, private=True)


def _read(path: Path, what: str, private: bool) -> bytes:
    try:
        # Without waiting: a pipe put there would hang us.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise UsageError(f"the {what} {path} is not a plain file", hint="Name the file itself.")
            if private and info.st_mode & _OTHERS:
                raise UsageError(f"the {what} {path} is open to others", hint=f"Close it: chmod 600 {path}")
            return file.read(MAX_BYTES)
    except OSError as error:
        raise UsageError(
            f"cannot read the {what} {path}: {error.strerror}", hint="Check the path and who may read it."
        ) from error


def write_whole(folder: Folder, name: str, data: bytes, mode: int = 0o600) -> Path:
    """Replace a file of ours in one step; nobody ever sees half of it."""
    path = folder.path / name
    try:
        _make_folder(folder)
        with rights.acting_as(rights.whose(folder.path)):
            _replace(folder, path, data, mode)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="Check the permissions and the free space there."
        ) from error
    return path


def _replace(folder: Folder, path: Path, data: bytes, mode: int) -> None:
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder.path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            if folder.owner is not None and os.fstat(file.fileno()).st_uid != folder.owner[0]:
                os.fchown(file.fileno(), *folder.owner)
        Path(unfinished).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(unfinished).unlink()
        raise


def _make_folder(folder: Folder) -> None:
    missing = [each for each in (folder.path, *folder.path.parents) if not each.exists()]
    for each in reversed(missing):
        who = rights.whose(each.absolute().parent)
        with rights.acting_as(who):
            each.mkdir(mode=0o700)
        if folder.owner is not None and who is None:
            os.chown(each, *folder.owner, follow_symlinks=False)
    info = folder.path.lstat()
    trusted = {0, os.geteuid(), folder.owner[0] if folder.owner else 0}
    if not stat.S_ISDIR(info.st_mode) or info.st_uid not in trusted or info.st_mode & 0o022:
        raise StoreError(
            f"{folder.path} can be changed by others, so no secret is kept there",
            hint=f"It must be a folder of your own: chmod 700 {folder.path}",
        )
