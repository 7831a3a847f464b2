"""docs/reliability.md: prose by hand, and between marks what the runs measured."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"


def put(text: str, name: str, section: str) -> str:
    """The page with one part exchanged; a part that is not there is an error."""
    marks = f"<!-- {name}: written by make {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(marks[0]) + ".*?" + re.escape(marks[1]), re.S)
    if not pattern.search(text):
        raise ValueError(f"docs/reliability.md has no part {name}")
    return pattern.sub(lambda _: f"{marks[0]}\n{section.strip()}\n{marks[1]}", text)


def write(name: str, section: str) -> None:
    PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), name, section), encoding="utf-8")
