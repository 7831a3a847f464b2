"""A table that fits: where there is too little room columns go, the least useful first, and are named.

Names and their numbers stay whole: a cut unit is a wrong number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ingero.serve.cli.options import offers_wide

# Least useful first. What is not listed stays: what tells two threads apart, for example.
MAY_GO = (
    "GPUs", "Unknown",
    "Errors", "Bytes", "Switches", "Feeds", "p95", "Total", "Container", "Times", "Node", "held",
    "Most time from", "Flags", "p50", "max", "Who", "Most of it", "Wall",
)  # fmt: skip
MAY_GO_EMPTY_ONLY = frozenset({"Errors"})  # what failed is never left out
LEAST_WORDS = 16  # characters that a column of words keeps when no other column is left to go
LONGEST_PIECE = 32  # of a text that has places to break at: longer pieces are folded


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cells: tuple[Text, ...]
    words: bool  # may be broken into lines

    @property
    def natural(self) -> int:
        return max(len(self.name), *(cell.cell_len for cell in self.cells)) if self.cells else len(self.name)

    @property
    def whole(self) -> int:
        """So wide that nothing is broken inside a word; a name by itself is one."""
        if not self.words:
            return self.natural
        return max(len(self.name), *(_whole(cell) for cell in self.cells)) if self.cells else len(self.name)

    @property
    def least(self) -> int:
        return min(self.whole, LEAST_WORDS) if self.words else self.natural

    @property
    def empty(self) -> bool:
        return all(cell.plain.strip() in ("", "-") for cell in self.cells)


def _whole(cell: Text) -> int:
    if not has_breaks(cell.plain):
        return cell.cell_len
    return min(longest_piece(cell.plain), LONGEST_PIECE)


class Fitting:
    """Columns and rows, drawn as people know it; those in `left` hold words, the others numbers."""

    def __init__(
        self, names: Sequence[str], rows: Iterable[Sequence[Text | str]], left: Sequence[int] = (0,)
    ) -> None:
        cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
        self.columns = [
            Column(name, tuple(row[at] for row in cells), at in left) for at, name in enumerate(names)
        ]

    def fits(self, width: int) -> bool:
        """With as few columns as may be shown."""
        return sum(each.least + 3 for each in chosen(self.columns, width)[0]) + 1 <= width

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        widest = min(_width(each.natural for each in self.columns), options.max_width)
        return Measurement(widest, widest)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        shown, gone = chosen(self.columns, options.max_width)
        widths = _widths(shown, options.max_width)
        table = Table(box=box.SQUARE, show_edge=True, pad_edge=True, header_style="")
        for each, width in zip(shown, widths, strict=True):
            table.add_column(
                each.name,
                justify="left" if each.words else "right",
                no_wrap=not each.words,
                overflow="fold",
                width=width,
            )
        columns = [_broken(each, width) for each, width in zip(shown, widths, strict=True)]
        for row in zip(*columns, strict=True):
            table.add_row(*row)
        yield table
        if gone:
            wider = (
                "A wider terminal, or --wide, shows them."
                if offers_wide()
                else "A wider terminal shows them."
            )
            yield Text(f"No room for: {', '.join(gone)}. {wider}", "dim")


def chosen(columns: Sequence[Column], width: int) -> tuple[list[Column], list[str]]:
    """Those that fit, and the names of those with something in them that do not."""
    gone: list[str] = []
    shown = list(columns)
    for name in _order(columns):
        if _width(each.whole for each in shown) <= width:
            break
        shown = [each for each in shown if each.name != name]
        gone.append(name)
    empty = {each.name for each in columns if each.empty}
    return shown, [each.name for each in columns if each.name in gone and each.name not in empty]


def _order(columns: Sequence[Column]) -> Iterator[str]:
    """Which go first: empty ones, then the less useful; never the first one, which says what a row is."""
    names = {each.name: each for each in columns[1:]}
    yield from (name for name in MAY_GO if name in names and names[name].empty)
    yield from (
        name for name in MAY_GO if name in names and not names[name].empty and name not in MAY_GO_EMPTY_ONLY
    )


def _width(widths: Iterable[int]) -> int:
    return sum(each + 3 for each in widths) + 1


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """Every column as wide as it likes, then the widest of words narrower until all fit."""
    found = [each.natural for each in columns]
    for least in ([each.whole for each in columns], [each.least for each in columns]):
        while _width(found) > width:
            may = [at for at in range(len(found)) if found[at] > least[at]]
            if not may:
                break
            found[max(may, key=lambda at: found[at])] -= 1
    return found


def _broken(column: Column, width: int) -> list[Text]:
    if not column.words:
        return list(column.cells)
    return [Text("\n").join(wrapped(cell, width)) if cell.cell_len > width else cell for cell in column.cells]


# Lines that end where a reader would break them: at a blank, or behind the slash of a path.
#
# A path folded inside a word cannot be read, and not be copied either.


# A unit stays with its number: "9.3 %", "2.2 s". A slash that ends a word takes the blank behind it.
_UNIT = r"(?<=\d)\s(?=(?:%|[nµm]?s|h|d|W|MHz|°C|[KMGTP]?i?B)(?!\w))"
_PIECE = re.compile(rf"/*(?:[^\s/]|{_UNIT})+/*\s*|/+\s*|\s+")


def longest_piece(text: str) -> int:
    """What has to stand in one line."""
    return max((Text(piece.rstrip()).cell_len for piece in _PIECE.findall(text)), default=0)


def has_breaks(text: str) -> bool:
    """Whether it may be broken at all: the name of a function may not."""
    return len(_PIECE.findall(text)) > 1


def wrapped(text: Text, width: int) -> list[Text]:
    """The text in lines of at most `width`; inside a word only where a piece alone is longer."""
    lines: list[Text] = []
    for paragraph in text.split("\n", allow_blank=True) or [text]:
        lines += [_stripped(line) for line in paragraph.divide(_offsets(paragraph, width))]
    return lines or [text]


def _stripped(line: Text) -> Text:
    line.rstrip()
    return line


def _offsets(text: Text, width: int) -> list[int]:
    """Where new lines begin, in characters."""
    found: list[int] = []
    used = 0
    for match in _PIECE.finditer(text.plain):
        piece = match[0]
        if used and used + Text(piece.rstrip()).cell_len > width:
            found.append(match.start())
            used = 0
        for at, letter in enumerate(piece.rstrip()):
            wide = Text(letter).cell_len
            if used + wide > width and used:
                found.append(match.start() + at)
                used = 0
            used += wide
        used += len(piece) - len(piece.rstrip())
    return list(dict.fromkeys(at for at in found if at))
