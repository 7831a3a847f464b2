"""A document as Markdown, for a ticket.

Every character Markdown or the HTML inside it gives a meaning to is escaped: a
process may be called `</details>` or `[x](http://...)`.
"""

from __future__ import annotations

import re

from ingero.model.words import bucket_words
from ingero.serve.answers.shares import percents
from ingero.serve.cli.document import (
    Bar,
    Block,
    Code,
    Document,
    Field,
    Gap,
    Heading,
    Line,
    Rows,
    Title,
)

_MARKUP = re.compile(r"([\\`*_\[\]|~$])")
_FIRST = re.compile(r"^(\s*)([-+#=])|^(\s*\d+)([.)])(?=\s|$)")  # of a list or a heading
# What a ticket would turn into a mention, a reference or a link; a comment inside stops it.
_REFERENCES = re.compile(r"@(?=\w)|#(?=\d)|:(?=//)|\bwww(?=\.)|\b(?:GH|gh)(?=-\d)")


def as_markdown(document: Document) -> str:
    """The whole document."""
    parts: list[str] = []
    for block in document.blocks:
        text = _written(block)
        if text and parts and not _joins(parts[-1], text):
            parts.append("")
        parts += [text] if text else []
    return "\n".join(parts) + "\n"


def _joins(before: str, after: str) -> bool:
    """List items follow each other without an empty line."""
    return before.startswith("- ") and after.startswith("- ")


def escape(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _FIRST.sub(r"\1\3\\\2\4", _MARKUP.sub(r"\\\1", text))
    return _REFERENCES.sub(lambda found: f"{found[0]}<!-- -->", text)


def _written(block: Block) -> str:
    match block:
        case Title(text):
            return f"# {escape(text)}"
        case Heading(text, severity):
            return f"## {f'{escape(severity)}: ' if severity else ''}{escape(text)}"
        case Line(text, _):
            return escape(text)
        case Field(label, text, _, _):
            return f"- {f'**{escape(label)}**: ' if label else ''}{escape(text)}"
        case Code():
            return _fenced(block)
        case Bar(time_ns):
            rows = [(bucket_words(name), f"{percent:.1f} %") for name, percent in percents(time_ns)]
            return _table(Rows(("Where the time went", "Share"), rows))
        case Rows():
            return _table(block)
        case Gap():
            return ""


def _fenced(code: Code) -> str:
    """A fence longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", code.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{code.language}\n{code.text}\n{fence}"


def _table(rows: Rows) -> str:
    marks = [":--" if at in rows.left else "--:" for at in range(len(rows.columns))]
    lines = [rows.columns, marks, *rows.rows]
    return "\n".join(
        "| " + " | ".join(cell if line is marks else escape(cell) for cell in line) + " |" for line in lines
    )
