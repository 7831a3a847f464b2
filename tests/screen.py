"""What a person sees of the live view: its rows, after all filters."""

from __future__ import annotations

from rich.segment import Segment
from textual.app import App


def screen_rows(app: App[None]) -> list[list[Segment]]:
    """As they would be sent to the terminal."""
    return [list(row) for row in app.screen._compositor.render_strips()]


def screen_text(app: App[None]) -> str:
    rows = screen_rows(app)
    return "\n".join("".join(part.text for part in row).rstrip() for row in rows) + "\n"
