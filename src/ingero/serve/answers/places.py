"""Where this user's files are, for surfaces that keep some of their own."""

from __future__ import annotations

from pathlib import Path

from ingero.errors import IngeroError
from ingero.store.location import invoking_user, last_path, state_folder

__all__ = ["database", "owner_of_new_files", "stamp_of", "state_folder", "written_ns"]


def database(named: Path | None) -> Path:
    """The one named, or the one that is read without --db."""
    return named or last_path()


def owner_of_new_files() -> tuple[int, int] | None:
    """(uid, gid) of whoever called sudo; None where that is nobody else."""
    return invoking_user()


def written_ns(db: Path) -> int:
    """When something was last written into it; 0 where that cannot be told."""
    stamp = stamp_of(db)
    return max(stamp[0], stamp[3])


def stamp_of(db: Path) -> tuple[int, ...]:
    """Changes whenever something was written into a database."""
    found: list[int] = []
    for side in ("", "-wal"):
        try:
            info = db.with_name(db.name + side).stat()
            found += [info.st_mtime_ns, info.st_size, info.st_ino]
        except OSError:
            found += [0, 0, 0]
    return tuple(found)


# Which database is read without --db, and when it last changed; nothing in it is looked at.


def last_changed() -> float | None:
    """Seconds since the epoch; None: there is none, or it is not ours to read."""
    try:
        return written_ns(last_path()) / 1e9 or None
    except IngeroError:
        return None


def is_found(db: Path) -> bool:
    """Whether a question without --db is about this one."""
    try:
        return last_path().samefile(db)
    except (OSError, ValueError, IngeroError):
        return False
