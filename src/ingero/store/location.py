"""Where the database is, and making it so that only its owner can read it.

As root nothing is followed through a link somebody else may have put there, and
what sudo creates belongs to the person who called it.
Files are looked at with O_PATH: closing an ordinary descriptor of a database
drops the locks SQLite holds on it in this process.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path

from ingero.errors import StoreError

_SIDE_FILES = ("-wal", "-shm", "-journal")


def default_path() -> Path:
    """INGERO_DB, or ~/.ingero/ingero.db of the person who called sudo."""
    named = os.environ.get("INGERO_DB")
    try:
        return Path(named).expanduser() if named else state_folder() / "ingero.db"
    except RuntimeError as error:  # no HOME, and a user the system has no name for
        raise StoreError(
            "cannot tell where the database is: this user has no home directory",
            hint="Name it with --db or INGERO_DB.",
        ) from error


def state_folder() -> Path:
    """~/.ingero of the person who called sudo: what we keep for this user."""
    return _home() / ".ingero"


def invoking_user() -> tuple[int, int] | None:
    """Who called sudo, as (uid, gid); None when nobody did."""
    if os.geteuid() != 0:
        return None
    try:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return (uid, gid) if uid > 0 else None


def _home() -> Path:
    owner = invoking_user()
    if owner is not None:
        with contextlib.suppress(KeyError):
            return Path(pwd.getpwuid(owner[0]).pw_dir)
    return Path.home()


def prepare_directory(directory: Path) -> None:
    """Make sure the directory of a database is there."""
    try:
        _make_directory(directory)
    except OSError as error:
        raise StoreError(
            f"cannot create the directory {directory}: {error.strerror}",
            hint="Choose another place, or check the permissions.",
        ) from error


def prepare(path: Path) -> None:
    """Make sure the database file is there, is a plain file and is private."""
    try:
        _make_directory(path.parent)
        refuse_links(path)
        _make_file(path)
    except OSError as error:
        raise StoreError(
            f"cannot create the database {path}: {error.strerror}",
            hint="Choose another place with --db, or check the directory's permissions and free space.",
        ) from error


def _make_directory(directory: Path) -> None:
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    owner = invoking_user()
    for made in reversed(missing):
        made.mkdir(mode=0o700)
        if owner is not None:
            os.chown(made, *owner, follow_symlinks=False)


def _make_file(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        _require_plain(path)
        return
    try:
        owner = invoking_user()
        if owner is not None:
            os.fchown(handle, *owner)
    finally:
        os.close(handle)


def _require_plain(path: Path) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise StoreError(f"{path} is not a plain file", hint="Choose another database with --db.")
    finally:
        os.close(handle)


def refuse_links(path: Path, flag: str = "--db") -> None:
    """As root: no link as database, as one of its side files, or as a directory another user made.

    `flag` is what the path was given with.
    """
    if os.geteuid() != 0:
        return
    for name in (path, *(path.with_name(path.name + side) for side in _SIDE_FILES)):
        if name.is_symlink():
            raise StoreError(
                f"{name} is a symbolic link; as root it is not followed",
                hint=f"Give the real file with {flag}, for example {flag} {_target(name)}.",
            )
    parent = path.absolute().parent
    if parent.is_symlink() and parent.lstat().st_uid != 0:
        raise StoreError(
            f"the directory {parent} is a symbolic link of another user; as root it is not followed",
            hint=f"Give the real directory with {flag}, for example {flag} {_target(parent)}/{path.name}.",
        )


def _target(link: Path) -> str:
    try:
        return str(link.resolve())
    except (OSError, RuntimeError):
        return "PATH"
