"""When the database that is read without --db last changed; nothing in it is looked at."""

from __future__ import annotations

from pathlib import Path

from ingero.errors import IngeroError
from ingero.store.location import default_path


def last_changed() -> float | None:
    """Seconds since the epoch; None: there is none, or it is not ours to read."""
    try:
        path = default_path()
        return max(each.stat().st_mtime for each in (path, Path(f"{path}-wal")) if each.exists())
    except (OSError, ValueError, IngeroError):
        return None
