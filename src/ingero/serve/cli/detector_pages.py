"""The pages in docs/detectors, written from the detectors: one each, an index, the thresholds."""

from __future__ import annotations

import re
import textwrap

from ingero.model import words
from ingero.serve.answers import catalogue
from ingero.serve.answers.catalogue import Entry

WIDTH = 105

INDEX = """\
# What is found

{written_by}

Every kind of finding has its page: how the problem shows, what proves it, what it is not, and what we
cannot see. How a verdict is made: [diagnosis](../diagnosis.md); the numbers that decide:
[thresholds](thresholds.md). A problem that is not watched is named in every answer, with the reason; it
is never "fine".

| kind | problem | watched |
|---|---|---|
"""

SOURCES = """
## Sources

What was not recorded makes the kinds that need it say so (`not_watched`).

| source | what it tells |
|---|---|
"""

THRESHOLDS = """\
# Thresholds

{written_by}

The numbers that decide, collected from the modules that use them. Those of the severities are in
[diagnosis](../diagnosis.md).

| module | number | value | why |
|---|---|---|---|
"""


def pages(written_by: str) -> dict[str, str]:
    """Every page by its name under docs."""
    entries = catalogue.entries()
    kinds = {entry.name for entry in entries}
    made = {f"detectors/{entry.name}.md": _page(entry, kinds, written_by) for entry in entries}
    made["detectors/README.md"] = _index(entries, written_by)
    made["detectors/thresholds.md"] = _thresholds(written_by)
    return made


def _index(entries: list[Entry], written_by: str) -> str:
    rows = [
        f"| [`{entry.name}`]({entry.name}.md) | {entry.title} |"
        f" {f'no: {entry.unwatched}' if entry.unwatched else 'yes'} |\n"
        for entry in entries
    ]
    sources = [f"| `{name}` | {about} |\n" for name, about in words.SOURCES.items()]
    return "".join([INDEX.format(written_by=written_by), *rows, SOURCES, *sources])


def _page(entry: Entry, kinds: set[str], written_by: str) -> str:
    watched = f"no: {entry.unwatched}" if entry.unwatched else "yes"
    opening = _wrapped(f"**{entry.title}.** {_linked(entry.summary, kinds, entry.name)}")
    needs = ", ".join(f"`{name}`" for name in entry.needs)
    lines = [
        f"# {entry.name}\n\n{written_by}\n\n{opening}\n",
        "\n| severity | needs | watched |\n|---|---|---|\n",
        f"| {entry.severity} | {needs} | {watched} |\n",
    ]
    for part in catalogue.PARTS:
        text = _linked(entry.parts[part], kinds, entry.name)
        lines.append(f"\n## {part}\n\n{_wrapped(text[:1].upper() + text[1:])}\n")
    return "".join([*lines, "\n[All kinds](README.md), [how a verdict is made](../diagnosis.md)\n"])


def _linked(text: str, kinds: set[str], own: str) -> str:
    """Other kinds that a text names lead to their pages."""
    return re.sub(
        r"\b[a-z]+(?:-[a-z]+)+\b",
        lambda word: f"[{word[0]}]({word[0]}.md)" if word[0] in kinds - {own} else word[0],
        text,
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _thresholds(written_by: str) -> str:
    rows = [
        f"| `{each.module.removeprefix('ingero.')}` | `{each.name}` | {each.value} | {each.reason} |\n"
        for each in catalogue.thresholds()
    ]
    return "".join([THRESHOLDS.format(written_by=written_by), *rows])
