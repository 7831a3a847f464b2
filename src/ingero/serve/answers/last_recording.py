"""Which database is read without --db, and when it last changed; nothing in it is looked at."""

from __future__ import annotations

from pathlib import Path

from ingero.errors import IngeroError
from ingero.serve.answers.places import written_ns
from ingero.store.location import last_path


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
