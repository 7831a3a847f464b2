"""The tour in the README: its pictures are there, small, and load nothing."""

from __future__ import annotations

import re

from tests.contracts.tree import ROOT

MOST_BYTES = 300_000


def test_the_tour_shows_terminal_dashboard_and_report() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = [ROOT / path for path in re.findall(r"!\[[^\]]+\]\((docs/images/tour-[^)]+)\)", text)]
    assert [path.name for path in shown] == ["tour-terminal.svg", "tour-dashboard.png", "tour-report.png"]
    assert sum(path.stat().st_size for path in shown) < MOST_BYTES


def test_the_picture_of_the_terminal_loads_nothing() -> None:
    drawn = (ROOT / "docs/images/tour-terminal.svg").read_text(encoding="utf-8")
    assert not re.search(r"url\(.?(https?:|//)|@import|<script|href=", drawn)
    assert "waiting&#160;for&#160;a&#160;core" in drawn
