"""A document on a terminal, in a pipe or in a text file.

Colours and bars only on a terminal. Labels stand in a column of their own, so that
what they say wraps beside them. In a pipe or a file nothing is wrapped or cut, so
that it can be searched for; commands never are, so that they can be copied. A table
that does not fit is written as lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ingero.model.words import bucket_words
from ingero.serve import terminal
from ingero.serve.answers.shares import percents
from ingero.serve.called import runnable
from ingero.serve.cli import tables
from ingero.serve.cli.document import (
    Bar,
    Block,
    Code,
    Document,
    Field,
    Gap,
    Heading,
    Line,
    Rows,
    Title,
)
from ingero.serve.cli.fitting import Fitting, wrapped

INDENT, LABEL = 2, 13
TONES = {"plain": "", "dim": "bright_black", "warning": "yellow", "good": "green"}
WIDEST_BAR = 60


def write_text(document: Document, console: Console) -> None:
    """Print every block; a gap at the end or after another gap is left out."""
    blocks = [
        block
        for block, following in zip(document.blocks, [*document.blocks[1:], Gap()], strict=True)
        if not (isinstance(block, Gap) and isinstance(following, Gap))
    ]
    for block in blocks:
        _write(block, console)


def _write(block: Block, console: Console) -> None:
    match block:
        case Code(text, _):
            mark = Text(" " * (INDENT + LABEL)).append("$ " if block.language == "sh" else "", "bright_black")
            console.print(mark.append(runnable(text), "cyan"), soft_wrap=True)
        case Title(text):
            _print(Text(text, "bold"), console)
        case Heading(text, severity):
            _print(_heading(text, severity), console)
        case Line(text, tone):
            _print(Text(text, TONES.get(tone, "")), console)
        case Field():
            _write_field(block, console)
        case Bar():
            _write_bar(block, console)
        case Rows():
            _write_rows(block, console)
        case Gap():
            console.print()


def _heading(text: str, severity: str) -> Text:
    if not severity:
        return Text(text, "bold")
    mark = Text(f"[{terminal.clean(severity)}]", terminal.SEVERITY_STYLES.get(severity, ""))
    return mark.append(f" {text}", "bold")


def _print(text: Text, console: Console) -> None:
    lines = wrapped(text, console.width) if console.is_terminal else [text]
    for line in lines:
        console.print(line, soft_wrap=True)


def _write_field(field: Field, console: Console) -> None:
    text = Text(field.text, TONES.get(field.tone, ""))
    for number, line in enumerate(_lines(text, field.rows, console)):
        label = f"{field.label}:" if field.label and not number else ""
        before = Text(" " * INDENT).append(f"{label:{LABEL}}", "bold")
        line.rstrip()
        console.print(before.append_text(line), soft_wrap=True)


def _lines(text: Text, rows: int, console: Console) -> list[Text]:
    if not console.is_terminal:
        return [text]
    room = _room(console)
    lines = wrapped(text, room)
    if rows and len(lines) > rows:
        lines = lines[:rows]
        lines[-1].rstrip()
        lines[-1].append("…")
        lines[-1].truncate(room, overflow="ellipsis")
    return lines


def _room(console: Console) -> int:
    return max(20, console.width - INDENT - LABEL)


def _write_bar(bar: Bar, console: Console) -> None:
    parts = percents(bar.time_ns)
    if not parts:
        return
    label = Text(" " * INDENT).append(f"{'Time:':{LABEL}}", "bold")
    if not console.is_terminal:
        console.print(label.append("  ".join(map(_words, parts))), soft_wrap=True)
        return
    if bar.short:
        _write_field(Field("Time", "  ".join(map(_words, parts))), console)
        return
    room = _room(console)
    console.print(label.append_text(terminal.stacked_bar(bar.time_ns, min(room, WIDEST_BAR))))
    for line in _legend(parts, room):
        console.print(Text(" " * (INDENT + LABEL)).append_text(line))


def _words(part: tuple[str, float]) -> str:
    return f"{bucket_words(terminal.clean(part[0], 20))} {part[1]:.1f} %"


def _marked(part: tuple[str, float]) -> Text:
    mark, style = terminal.BUCKET_MARKS.get(part[0], "?"), terminal.BUCKET_STYLES.get(part[0], "white")
    return Text(f"{mark} ", style).append(_words(part), "default")


def _legend(parts: Sequence[tuple[str, float]], room: int) -> list[Text]:
    """All parts in as many rows as they take; a part is never broken."""
    lines = [Text()]
    for part in map(_marked, parts):
        if lines[-1] and lines[-1].cell_len + 2 + part.cell_len > room:
            lines.append(Text())
        lines[-1].append("  " if lines[-1] else "").append_text(part)
    return lines


def _write_rows(rows: Rows, console: Console) -> None:
    table = Fitting(rows.columns, [[Text(cell) for cell in row] for row in rows.rows], rows.left)
    if table.fits(console.width - INDENT):
        console.print(tables.indented(table))
        return
    for row in rows.rows:
        pairs = ", ".join(f"{name} {cell}" for name, cell in zip(rows.columns[1:], row[1:], strict=True))
        _write_field(Field("", f"{row[0]}: {pairs}"), console)
