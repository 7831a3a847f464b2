"""docs/glossary.md and frontend/src/words.js, written from model/words.py.

`python -m ingero.serve.cli.glossary frontend/src/words.js` writes the module; `reference` writes the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ingero.model import words
from ingero.serve.answers import catalogue

PAGE = """\
# Glossary

{written_by}

The words that terminal, dashboard, reports and assistants use. Names in `code type` are those of JSON,
SQL and metrics, and do not change.
"""
MODULE = """\
// Written by `make docs` from ingero/model/words.py; do not edit. What things are called among people.

export const BUCKETS = {buckets};

export const KINDS = {kinds};

export const COLUMNS = {columns};
"""


def page(written_by: str) -> str:
    return "".join([PAGE.format(written_by=written_by), *_sections()])


def _sections() -> Iterator[str]:
    yield from _table(
        "Where time goes",
        ("bucket", "in words", "the thread was"),
        ((f"`{name}`", each.words, each.means) for name, each in words.BUCKETS.items()),
    )
    yield "\n[How time is accounted](accounting.md) says how each is told from the others.\n"
    yield from _table(
        "What can be found",
        ("kind", "in words"),
        ((_linked(each.name), each.title) for each in catalogue.looked_for()),
    )
    yield from _table(
        "What nobody looks for yet",
        ("kind", "in words", "because"),
        ((_linked(each.name), each.title, each.unwatched) for each in catalogue.not_looked_for()),
    )
    yield from _table("Words", ("word", "means"), words.TERMS.items())
    yield from _table("Headings of tables", ("heading", "means"), words.COLUMNS.items())
    yield "\nColumns of SQL tables and views: [schema](schema.md).\n"


def _linked(kind: str) -> str:
    return f"[`{kind}`](detectors/{kind}.md)"


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"


def module() -> str:
    """What the pages of the dashboard and the report are bundled with."""
    return MODULE.format(
        buckets=_object(words.BUCKET_WORDS), kinds=_object(words.KINDS), columns=_object(words.COLUMNS)
    )


def _object(table: dict[str, str]) -> str:
    return json.dumps(table, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(module(), encoding="utf-8")
