"""A document on a terminal, in a pipe or in a text file.

Colours and bars only on a terminal. Labels stand in a column of their own, so that
what they say wraps beside them. In a pipe or a file nothing is wrapped or cut, so
that it can be searched for; commands never are, so that they can be copied. A table
that does not fit is written as lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ingero.serve import terminal
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
    percents,
)

INDENT, LABEL = 2, 11
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
            console.print(mark.append(text, "cyan"), soft_wrap=True)
        case Title(text):
            _print(Text(text, "bold"), console)
        case Heading(text, severity):
            _print(_heading(text, severity), console)
        case Line(text, tone):
            _print(Text(text, TONES.get(tone, "")), console)
        case Field():
            _write_field(block, console)
        case Bar(time_ns):
            _write_bar(time_ns, console)
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
    console.print(text, soft_wrap=not console.is_terminal)


def _write_field(field: Field, console: Console) -> None:
    text = Text(field.text, TONES.get(field.tone, ""))
    for number, line in enumerate(_lines(text, field.short, console)):
        label = f"{field.label}:" if field.label and not number else ""
        before = Text(" " * INDENT).append(f"{label:{LABEL}}", "bold")
        line.rstrip()
        console.print(before.append_text(line), soft_wrap=True)


def _lines(text: Text, short: bool, console: Console) -> list[Text]:
    room = max(20, console.width - INDENT - LABEL)
    if not console.is_terminal:
        return [text]
    if short:
        text.truncate(room, overflow="ellipsis")
        return [text]
    return list(text.wrap(console, room, overflow="fold"))


def _write_bar(time_ns: Any, console: Console) -> None:
    room = max(20, console.width - INDENT - LABEL)
    parts = percents(time_ns)
    if not parts:
        return
    if console.is_terminal:
        bar = terminal.stacked_bar(time_ns, min(room, WIDEST_BAR))
        console.print(Text(" " * INDENT).append(f"{'Time:':{LABEL}}", "bold").append_text(bar))
    legend = _legend(parts, room if console.is_terminal else None)
    label = "" if console.is_terminal else "Time:"
    console.print(Text(" " * INDENT).append(f"{label:{LABEL}}", "bold").append_text(legend), soft_wrap=True)


def _legend(parts: Sequence[tuple[str, float]], room: int | None) -> Text:
    """The largest parts; in one row of a terminal, with what the others come to."""
    count = len(parts)
    text = _named(parts, count, room is not None)
    while room is not None and text.cell_len > room and count > 1:
        count -= 1
        text = _named(parts, count, True)
    return text


def _named(parts: Sequence[tuple[str, float]], count: int, marked: bool) -> Text:
    text = Text("  ").join([_part(name, percent, marked) for name, percent in parts[:count]])
    rest = sum(percent for _, percent in parts[count:])
    return text.append(f"  other {rest:.1f} %") if count < len(parts) else text


def _part(name: str, percent: float, marked: bool) -> Text:
    style = terminal.BUCKET_STYLES.get(name, "white")
    mark = Text(f"{terminal.BUCKET_MARKS.get(name, '?')} ", style) if marked else Text()
    return mark.append(f"{terminal.clean(name, 20)} {percent:.1f} %", "default")


def _write_rows(rows: Rows, console: Console) -> None:
    table = tables.boxed(rows.columns, [[Text(cell) for cell in row] for row in rows.rows], rows.left)
    if console.measure(table).minimum + INDENT <= console.width and _fits(rows, console):
        console.print(tables.indented(table))
        return
    for row in rows.rows:
        pairs = ", ".join(f"{name} {cell}" for name, cell in zip(rows.columns[1:], row[1:], strict=True))
        _write_field(Field("", f"{row[0]}: {pairs}"), console)


def _fits(rows: Rows, console: Console) -> bool:
    """Numbers are not cut: their columns need their full width, words at least ten characters."""
    columns = list(zip(rows.columns, *rows.rows, strict=True))
    widths = [
        min(10, max(map(len, cells))) if at in rows.left else max(map(len, cells))
        for at, cells in enumerate(columns)
    ]
    return sum(widths) + 3 * len(widths) + 1 + INDENT <= console.width
