"""Where the database is, and making it so that only its owner can read it.

As root nothing is followed through a link somebody else may have put there, what lies
in a user's folder is done with that user's rights (rights.py), and what sudo creates
belongs to the person who called it.
Files are looked at with O_PATH: closing an ordinary descriptor of a database
drops the locks SQLite holds on it in this process.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ingero import rights
from ingero.errors import StoreError

SERVICES = Path("/var/lib/ingero/ingero.db")  # what deploy/systemd/ingero.service writes
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


def demo_path() -> Path:
    """Where a demo is recorded: beside the real recordings, never among them."""
    return default_path().with_name("demo.db")


def last_path() -> Path:
    """What is read without --db: INGERO_DB, or whichever was written last, the recordings or a demo."""
    usual, demo = default_path(), demo_path()
    return usual if os.environ.get("INGERO_DB") or _changed(demo) <= _changed(usual) else demo


def _changed(database: Path) -> float:
    """When something was last written into it; 0 where there is none, or it is not ours to read."""
    times = [0.0]
    for file in (database, Path(f"{database}-wal")):
        with contextlib.suppress(OSError, ValueError):
            times.append(file.stat().st_mtime)
    return max(times)


def state_folder() -> Path:
    """~/.ingero of the person who called sudo: what we keep for this user."""
    return _home() / ".ingero"


def invoking_user() -> tuple[int, int] | None:
    """Who called sudo, as (uid, gid); None when nobody did."""
    caller = rights.invoking_user()
    return (caller.uid, caller.gid) if caller else None


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


class Prepared(NamedTuple):
    """With whose rights the database is opened and written, and which file it is."""

    who: rights.User | None
    identity: tuple[int, int]


def prepare(path: Path) -> Prepared:
    """Make sure the database file is there, is a plain file and is private."""
    try:
        _make_directory(path.parent)
        refuse_links(path)
        who = rights.whose(path.absolute().parent)
        with rights.acting_as(who):
            return Prepared(who, _make_file(path))
    except OSError as error:
        raise StoreError(
            f"cannot create the database {path}: {error.strerror}",
            hint="Choose another place with --db, or check the directory's permissions and free space.",
        ) from error


def _make_directory(directory: Path) -> None:
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for made in reversed(missing):
        who = rights.whose(made.absolute().parent)
        with rights.acting_as(who):
            made.mkdir(mode=0o700)
        owner = invoking_user()
        if owner is not None and who is None:  # made by root where nobody else can move it away
            os.chown(made, *owner, follow_symlinks=False)


def _make_file(path: Path) -> tuple[int, int]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _require_plain(path)
    try:
        owner = invoking_user()
        if owner is not None and os.fstat(handle).st_uid != owner[0]:
            os.fchown(handle, *owner)
        return _identity_of(os.fstat(handle))
    finally:
        os.close(handle)


def _require_plain(path: Path) -> tuple[int, int]:
    nofollow = os.O_NOFOLLOW if os.geteuid() == 0 else 0
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | nofollow)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise StoreError(f"{path} is not a plain file", hint="Choose another database with --db.")
        return _identity_of(os.fstat(handle))
    finally:
        os.close(handle)


def uri(path: Path, how: str) -> str:
    """What SQLite opens, whatever characters the path has."""
    return f"file:{quote(os.fsencode(path.absolute()))}?{how}"


def identity(path: Path) -> tuple[int, int] | None:
    """Which file it is; None where there is none."""
    try:
        return _identity_of(path.stat())
    except OSError:
        return None


def _identity_of(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def require_open(meant: tuple[int, int], path: Path) -> None:
    """SQLite resolves names by itself: nothing is written before it holds the very file we looked at."""
    held = {identity(each) for each in Path("/proc/self/fd").iterdir()}
    if meant not in held:
        raise StoreError(f"{path} was exchanged while it was opened", hint="Choose another place with --db.")


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
