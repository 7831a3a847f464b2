"""One colour, one meaning: what a call is drawn in is never what a part of time is drawn in."""

from __future__ import annotations

import re
from pathlib import Path

STYLE = Path(__file__).parents[2] / "frontend" / "public" / "style.css"


def test_calls_do_not_have_the_colours_of_buckets() -> None:
    found = re.findall(r"--([bc])-[a-z-]+: (#[0-9a-f]{6})", STYLE.read_text())
    buckets = {colour for kind, colour in found if kind == "b"}
    calls = {colour for kind, colour in found if kind == "c"}
    assert buckets
    assert calls
    assert not buckets & calls
