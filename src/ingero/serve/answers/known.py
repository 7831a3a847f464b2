"""Whether the recording has what is asked for by name.

An empty answer to a process that never was would look like one that did nothing.
"""

from __future__ import annotations

from pathlib import Path

from ingero.errors import TargetError
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.whose import require_whose
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.units import clean

_KNOWN = {
    "pid": ("process", "process", "pid = ?"),
    "op": ("operation", "op", "name = ? COLLATE NOCASE"),
}


def require_known(db: Path | None, filters: Filters, node: str | None = None) -> None:
    """Raises TargetError for the first that no part of the recording has."""
    asked = {name: getattr(filters, name) for name in _KNOWN if getattr(filters, name) is not None}
    if not asked and not filters.whose:
        return
    with Reader(db or last_path(), node) as reader:
        require_whose(reader, filters.whose)
        for name, value in asked.items():
            what, table, condition = _KNOWN[name]
            if not reader.rows(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1", (value,)):
                raise TargetError(
                    f"there is no {what} {clean(str(value), 60)!r} in this recording",
                    hint="It may have been another recording, or another node.",
                )
