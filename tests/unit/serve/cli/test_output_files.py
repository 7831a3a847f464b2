"""What is written with -o never costs somebody a recording."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ingero.errors import UsageError
from ingero.serve.cli.output import writing


def test_a_database_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is a database"), writing(path) as file:
        file.write(b"something else")
    assert path.read_bytes() == before


def test_another_file_is(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with writing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
