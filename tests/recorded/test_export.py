"""Every kept recording comes out as Parquet and CSV, and back as it was."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus.kept import FOLDER, database
from ingero.serve.answers.tables import COLUMNS, WantedRows, column_kinds, open_tables
from ingero.serve.cli.export_tables import write_csv, write_parquet

KEPT = sorted(FOLDER.glob("*/*.json"))
CSV_ROWS = 300  # of each table: kinds of columns are the same further down
READ = {"text": str, "real": float, "whole": int}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_table_of_every_kept_recording_can_be_exported_and_read_back(path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    with database(path) as db, open_tables(WantedRows(db)) as tables:
        for name in COLUMNS:
            rows = list(tables.rows(name))
            out = io.BytesIO()
            write_parquet(name, iter(rows), out)
            table = parquet.read_table(io.BytesIO(out.getvalue()))
            assert table.column_names == list(COLUMNS[name])
            assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == rows, name
            out = io.BytesIO()
            write_csv(name, rows[:CSV_ROWS], out)
            lines = csv.reader(io.StringIO(out.getvalue().decode()))
            assert next(lines) == list(COLUMNS[name])
            assert [_read(line, name) for line in lines] == [_bare(row) for row in rows[:CSV_ROWS]], name


def _read(cells: list[str], name: str) -> tuple[Any, ...]:
    kinds = column_kinds(name).values()
    return tuple(READ[kind](cell) if cell else None for cell, kind in zip(cells, kinds, strict=True))


def _bare(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """As a CSV has it: no text and an empty one are the same, and a formula has an apostrophe."""
    return tuple(
        (f"'{value}" if value.startswith(("=", "+", "-", "@")) else value) or None
        if isinstance(value, str)
        else value
        for value in row
    )
