"""Answers written out: JSON, CSV, Parquet and plain columns.

Strings may come from traced processes or from somebody else's database. JSON has
escapes for everything that could steer a terminal, so they are used; plain
columns are cleaned, and CSV is as harmless.py has it.
"""

from __future__ import annotations

import csv
import os
import re
import secrets
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from ingero import units
from ingero.errors import UsageError
from ingero.serve.cli.harmless import cell

# msgspec escapes C0; the rest could steer a terminal, or not be writable to it.
_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")
CELL_LIMIT = 200
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
Row = Mapping[str, Any]


def to_json(value: Any) -> str:
    """One line of JSON, harmless to a terminal and the same in every locale."""
    text = msgspec.json.encode(value).decode()
    return text if text.isascii() and "\x7f" not in text else _NOT_ASCII.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """As JSON has it: characters of the upper planes are two escapes."""
    halves = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{halves[at : at + 4]}" for at in range(0, len(halves), 4))


def write_csv(columns: Sequence[str], rows: Iterable[Row], out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([cell(column) for column in columns])
    writer.writerows([cell(row[column]) for column in columns] for row in rows)


def write_file(path: Path, text: str) -> None:
    """The whole text or nothing, as `writing` does it."""
    with writing(path) as file:
        file.write(text.encode("utf-8", "replace"))


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all, readable by its owner.

    Only a plain file is replaced, and never a database: it may be the recording that is read. A
    link in its place is not followed; one to its folder only where `held_folder` says so.
    """
    try:
        with held_folder(path.parent) as folder:
            _require_replaceable(path, folder)
            unfinished = f".{path.name[:80]}.{secrets.token_hex(8)}"
            handle = os.open(
                unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder
            )
            try:
                with os.fdopen(handle, "wb") as file:
                    yield file
                os.replace(unfinished, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished, dir_fd=folder)
                raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot write {path}: {why}", hint="Choose a folder you can write to.") from error


def _require_replaceable(path: Path, folder: int) -> None:
    try:
        info = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is not a plain file and is not replaced", hint="Choose another with -o.")
    handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        if file.read(16) == b"SQLite format 3\0":
            raise UsageError(f"{path} is a database and is not replaced", hint="Name another file with -o.")


def write_columns(columns: Sequence[str], rows: Sequence[Row], out: TextIO) -> None:
    """Aligned columns under a line of dashes; numbers to the right."""
    names = [units.clean(column, CELL_LIMIT) for column in columns]
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[column], int | float | None) for row in rows) for column in columns
    ]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    out.write(_line(names, widths, numeric))
    out.write(_line(["-" * width for width in widths], widths, numeric))
    for row in cells:
        out.write(_line(row, widths, numeric))


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    aligned = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "  ".join(aligned).rstrip() + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"
    return units.clean(str(value), CELL_LIMIT)


def write_parquet(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """To standard output, which must not be a terminal."""
    if sys.stdout.isatty():
        raise UsageError(
            "Parquet cannot be shown on a terminal", hint="Write it to a file: ingero query ... > out.parquet"
        )
    by_column = {column: [row[column] for row in rows] for column in columns}
    pyarrow, parquet = parquet_modules()
    parquet.write_table(pyarrow.table(by_column), sys.stdout.buffer)


def parquet_modules() -> tuple[Any, Any]:
    """pyarrow and its writer, an extra of ours."""
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        hint = "Install it with pip install 'ingero[parquet]', or use --format csv."
        raise UsageError("writing Parquet needs pyarrow, which is not installed", hint=hint) from error
    return pyarrow, parquet


# Folders that are written into, held open so that nobody can exchange them meanwhile.
#
# A link of the user's own, or of root, is followed: whoever names it means where it leads.
# A link of somebody else in a folder that others may write to, as /tmp, is not: it could
# lead to files of ours, and what is written would replace them.


_HOLD = os.O_PATH | os.O_CLOEXEC
_OTHERS_WRITE = 0o022
MOST_LINKS = 40  # as the kernel has it


@contextmanager
def held_folder(path: Path) -> Iterator[int]:
    """A handle on the folder, for *at() calls; raises OSError as opening it would."""
    at = os.open("/", _HOLD | os.O_DIRECTORY)
    parts, links = deque(path.absolute().parts[1:]), 0
    try:
        while parts:
            step = os.open(parts.popleft(), _HOLD | os.O_NOFOLLOW, dir_fd=at)
            at, before = step, at
            try:
                if stat.S_ISLNK(os.fstat(step).st_mode):
                    links += 1
                    target = _followed(path, step, before, links)
                    parts.extendleft(reversed([part for part in target.parts if part != "/"]))
                    at = os.open("/", _HOLD) if target.is_absolute() else os.dup(before)
                    os.close(step)
            finally:
                os.close(before)
        os.stat(".", dir_fd=at)  # whether it is a folder
        yield at
    finally:
        os.close(at)


def _followed(path: Path, link: int, folder: int, links: int) -> Path:
    found, around = os.fstat(link), os.fstat(folder)
    ours = (0, os.geteuid())
    # A user's own folder is that user's business, save where root would be led out of it.
    theirs = around.st_mode & _OTHERS_WRITE or (os.geteuid() == 0 and around.st_uid != 0)
    if theirs and found.st_uid not in ours:
        raise UsageError(
            f"{path} goes through a symbolic link of another user, in a folder that others can write to",
            hint="Nothing was written. Name the folder itself, or one that only you can write to.",
        )
    if links > MOST_LINKS:
        raise UsageError(f"{path} goes through too many symbolic links", hint="Name the folder itself.")
    return Path(os.readlink("", dir_fd=link))
