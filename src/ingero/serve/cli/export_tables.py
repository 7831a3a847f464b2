"""Tables as CSV or Parquet, row by row.

Text in a recording comes from traced processes: CSV has it as harmless.py makes it, Parquet
as it is.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import click

from ingero.errors import StoreError, UsageError
from ingero.serve.answers.tables import COLUMNS, WantedRows, column_kinds, open_tables, require_table
from ingero.serve.answers.whose import EVERYBODY
from ingero.serve.cli.export import Export
from ingero.serve.cli.harmless import cell
from ingero.serve.cli.output import held_folder, parquet_modules, writing

DEFAULT = "events"
GROUP_ROWS = 50_000
Row = tuple[Any, ...]
Write = Callable[[str, Iterator[Row], BinaryIO], None]


def export_csv(request: Export) -> None:
    _export(request, "csv", write_csv)


def export_parquet(request: Export) -> None:
    parquet_modules()  # before anything is opened
    if request.output is None and sys.stdout.isatty():
        raise UsageError("Parquet cannot be shown on a terminal", hint="Name a file with -o.")
    _export(request, "parquet", write_parquet)


def _export(request: Export, suffix: str, write: Write) -> None:
    if request.table is not None:
        require_table(request.table)
    wanted = WantedRows(request.db, request.when, request.pid, request.node, request.whose or EVERYBODY)
    with open_tables(wanted) as tables:
        for name, path in _files(request, suffix):
            if path is None:
                write(name, tables.rows(name), sys.stdout.buffer)
                sys.stdout.buffer.flush()
                continue
            with writing(path) as file:
                write(name, tables.rows(name), file)
            click.echo(f"Wrote {path}", err=True)


def _files(request: Export, suffix: str) -> list[tuple[str, Path | None]]:
    if request.output is None or not request.into_folder:
        return [(request.table or DEFAULT, request.output)]
    try:
        with held_folder(request.output.absolute().parent) as around:
            if not request.output.is_dir():
                os.mkdir(request.output.name, 0o700, dir_fd=around)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {request.output}: {error.strerror}", hint="Choose another with -o."
        ) from error
    names = [request.table] if request.table else list(COLUMNS)
    return [(name, request.output / f"{name}.{suffix}") for name in names]


def write_csv(name: str, rows: Iterable[Row], file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="", write_through=False)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS[name])
        writer.writerows([cell(value) for value in row] for row in rows)
    finally:
        text.flush()
        text.detach()


def write_parquet(name: str, rows: Iterator[Row], file: BinaryIO) -> None:
    pyarrow, parquet = parquet_modules()
    kinds = {"text": pyarrow.string(), "real": pyarrow.float64(), "whole": pyarrow.int64()}
    held = column_kinds(name)
    schema = pyarrow.schema([(column, kinds[held[column]]) for column in COLUMNS[name]])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(rows, GROUP_ROWS)):
            try:
                arrays = [
                    pyarrow.array(values, type=field.type)
                    for values, field in zip(zip(*group, strict=True), schema, strict=True)
                ]
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
                raise StoreError(
                    f"{name} holds values that cannot be right: {error}", hint="The file is damaged."
                ) from error
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
