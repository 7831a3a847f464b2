"""A report as blocks: what every format can write, and nothing about how.

Text of traced processes is cleaned when a block is made; a writer only has to
escape what its own format would take for markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingero import units


@dataclass(frozen=True)
class Title:
    text: str


@dataclass(frozen=True)
class Heading:
    """Of a section; a finding's has its severity."""

    text: str
    severity: str = ""


@dataclass(frozen=True)
class Line:
    """A sentence. `tone`: plain, dim, warning or good."""

    text: str
    tone: str = "plain"


@dataclass(frozen=True)
class Field:
    """A label and what it says; on a terminal cut to `rows` rows, unless that is 0."""

    label: str
    text: str
    tone: str = "plain"
    rows: int = 0


@dataclass(frozen=True)
class Code:
    """Something to copy: a command or SQL."""

    text: str
    language: str = "sh"


@dataclass(frozen=True)
class Bar:
    """Where time went; its parts sum to 100 %. `short`: in words alone."""

    time_ns: Mapping[str, int]
    short: bool = False


@dataclass(frozen=True)
class Rows:
    """A table; columns not in `left` hold numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Gap:
    """An empty line."""


Block = Title | Heading | Line | Field | Code | Bar | Rows | Gap


@dataclass
class Document:
    """Blocks in order."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        self.blocks.extend(blocks)


def time_bar(time_ns: Mapping[str, int], short: bool = False) -> Bar:
    """A bar whose parts have harmless names."""
    tidied: dict[str, int] = {}
    for name, ns in time_ns.items():
        tidied[tidy(name, 40)] = tidied.get(tidy(name, 40), 0) + ns
    return Bar(tidied, short)


def tidy(text: str, limit: int = 300) -> str:
    """Harmless text of bounded length."""
    return units.clean(text, limit)
