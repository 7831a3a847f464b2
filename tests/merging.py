"""What a merge must keep: every row of every view, compared as sets of rows with their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ingero.store.reader import Reader
from ingero.store.views import VIEWS


def rows(path: Path, view: str) -> Counter[tuple[Any, ...]]:
    """Without the cgroup's number, which has to differ where two nodes have the same one."""
    with Reader(path) as reader:
        names = [row[1] for row in reader.rows(f"PRAGMA table_info({view})")]
        wanted = ", ".join(name for name in names if name != "cgroup_id")
        return Counter(reader.rows(f"SELECT {wanted} FROM {view}"))


def sum_of(paths: Iterable[Path], view: str) -> Counter[tuple[Any, ...]]:
    """Rows of all of them; the same stacks are in several."""
    total: Counter[tuple[Any, ...]] = Counter()
    for path in paths:
        found = rows(path, view)
        total = total | found if view.startswith("stack") else total + found
    return total


def differing_views(merged: Path, parts: Iterable[Path]) -> list[str]:
    """Views in which the merged database is not the sum of its parts."""
    parts = list(parts)
    return [view for view in VIEWS if rows(merged, view) != sum_of(parts, view)]
