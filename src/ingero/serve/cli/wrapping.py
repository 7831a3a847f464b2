"""Lines that end where a reader would break them: at a blank, or behind the slash of a path.

A path folded inside a word cannot be read, and not be copied either.
"""

from __future__ import annotations

import re

from rich.text import Text

# A share stays with its number: "9.3 %". A slash that ends a word takes the blank behind it.
_PIECE = re.compile(r"/*(?:[^\s/]|\s(?=%))+/*\s*|/+\s*|\s+")


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
