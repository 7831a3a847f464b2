"""Texts of others made harmless, in one place: for terminals and for spreadsheets.

What a recording holds was named by traced processes, or written by whoever sent the file. A
terminal obeys control characters; a spreadsheet runs a cell that begins with = + - @. Every
console of ours and every CSV goes through here, so that no caller has to remember.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ingero.serve.letters import has_unicode, to_ascii

# All that units.visible replaces, save the line breaks and tabs that a text of several lines has.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def shown(text: str) -> str:
    """The same text with what would steer a terminal replaced; lines stay lines."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def cell(value: Any) -> Any:
    """A value as CSV has it: a text is never a formula, and bytes are digits."""
    if isinstance(value, str):
        text = shown(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    return value.hex() if isinstance(value, bytes) else value


class HarmlessConsole(Console):
    """Prints what it is given, and never what a text would have the terminal do."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        plain = self.is_terminal and not has_unicode(os.environ)
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or not (plain or _STEERING.search(text)):
                yield segment
            else:
                yield Segment(to_ascii(shown(text)) if plain else shown(text), segment.style)

    def on_broken_pipe(self) -> None:
        """Leaves a reader that went away to us; rich would end the process."""
        raise BrokenPipeError
