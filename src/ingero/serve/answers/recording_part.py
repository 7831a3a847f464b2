"""A part of the recording as a file of its own, for whoever puts several nodes together."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingero.errors import UsageError
from ingero.serve.answers.query import Range
from ingero.serve.answers.window import time_range
from ingero.store.excerpt import Part, TooLargeError, write_excerpt
from ingero.store.location import last_path
from ingero.store.migrations import table_names
from ingero.store.reader import Reader
from ingero.units import clean

__all__ = ["MOST_BYTES", "TooLargeError", "recording_part"]
MOST_BYTES = 1 << 30
DISK_SHARE = 4  # of what is free


@contextmanager
def recording_part(
    db: Path | None, wanted: Range, tables: str | None, most_bytes: int, last: bool = False
) -> Iterator[Path]:
    """A new database; without a range everything, or the last recording. Gone when this ends."""
    path = db or last_path()
    chosen = _tables(tables)
    part = Part(tables=chosen)
    if last or wanted != Range():
        with Reader(path) as reader:
            when = time_range(reader, wanted.since, wanted.start, wanted.end)
        part = Part(when.from_ns, when.to_ns, chosen)
    with tempfile.TemporaryDirectory(prefix="ingero-part-") as folder:
        most = min(most_bytes, MOST_BYTES, shutil.disk_usage(folder).free // DISK_SHARE)
        made = Path(folder) / "part.db"
        write_excerpt(path, made, Part(part.from_ns, part.to_ns, chosen, most))
        yield made


def _tables(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    named = frozenset(filter(None, text.split(",")))
    unknown = named - table_names()
    if unknown:
        raise UsageError(
            f"there is no table {clean(sorted(unknown)[0], 60)!r}", hint="The node may run another version."
        )
    return named
