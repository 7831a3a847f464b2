"""A table that fits: where there is too little room columns go, the least useful first, and are named.

Names and their numbers stay whole: a cut unit is a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

# Least useful first. What is not listed stays.
MAY_GO = (
    "GPUs", "Unknown",
    "Errors", "Bytes", "TID", "Feeds", "Switches", "p95", "Total", "Container", "Times", "Node", "held",
    "Most time from", "Flags", "p50", "max", "Who", "Most of it", "Wall",
)  # fmt: skip
LEAST_WORDS = 16  # characters that a column of words keeps, over as many lines as it takes


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cells: tuple[Text, ...]
    words: bool  # may be broken into lines

    @property
    def natural(self) -> int:
        return max(len(self.name), *(cell.cell_len for cell in self.cells)) if self.cells else len(self.name)

    @property
    def least(self) -> int:
        return min(self.natural, LEAST_WORDS) if self.words else self.natural

    @property
    def empty(self) -> bool:
        return all(not cell.plain.strip() for cell in self.cells)


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
        return _width(chosen(self.columns, width)[0], least=True) <= width

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        widest = min(_width(self.columns), options.max_width)
        return Measurement(widest, widest)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        shown, gone = chosen(self.columns, options.max_width)
        table = Table(box=box.SQUARE, show_edge=True, pad_edge=True, header_style="")
        for each in shown:
            table.add_column(
                each.name,
                justify="left" if each.words else "right",
                no_wrap=not each.words,
                overflow="fold",
                min_width=each.least,
            )
        for row in zip(*(each.cells for each in shown), strict=True):
            table.add_row(*row)
        yield table
        if gone:
            yield Text(f"No room for: {', '.join(gone)}. A wider terminal, or --wide, shows them.", "dim")


def chosen(columns: Sequence[Column], width: int) -> tuple[list[Column], list[str]]:
    """Those that fit, and the names of those with something in them that do not."""
    gone: list[str] = []
    shown = list(columns)
    for name in _order(columns):
        if _width(shown, least=True) <= width:
            break
        shown = [each for each in shown if each.name != name]
        gone.append(name)
    empty = {each.name for each in columns if each.empty}
    return shown, [each.name for each in columns if each.name in gone and each.name not in empty]


def _order(columns: Sequence[Column]) -> Iterator[str]:
    """Which go first: empty ones, then the less useful; never the first one, which says what a row is."""
    names = {each.name: each for each in columns[1:]}
    yield from (name for name in MAY_GO if name in names and names[name].empty)
    yield from (name for name in MAY_GO if name in names and not names[name].empty)


def _width(columns: Sequence[Column], least: bool = False) -> int:
    return sum((each.least if least else each.natural) + 3 for each in columns) + 1
