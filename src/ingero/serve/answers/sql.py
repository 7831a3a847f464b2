"""Columns and rows of somebody's SQL, run under guard."""

from __future__ import annotations

from ingero.store import sql_process
from ingero.store.guard import Limits, Rows
from ingero.store.reader import Reader

__all__ = ["Limits", "Rows", "answer_sql"]


def answer_sql(reader: Reader, sql: str, limits: Limits | None = None) -> Rows:
    """One reading statement; raises UsageError for bad SQL and StoreError for what takes too long."""
    return sql_process.run(reader, sql, limits)
