"""A document as one HTML file: styles inside, no scripts, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ingero.model.words import bucket_words
from ingero.serve.answers.shares import percents
from ingero.serve.cli.document import Bar, Block, Code, Document, Field, Gap, Heading, Line, Rows, Title
from ingero.serve.cli.output import to_json

if TYPE_CHECKING:
    from ingero.model.report import Report

COLOURS = {
    "gpu_wait": "#3a9b57", "cuda_cpu": "#2a9fb0", "host_cpu": "#3f74d1", "runqueue": "#d9483b",
    "lock_wait": "#a24fc4", "disk_wait": "#c99a12", "memory_wait": "#d0559a", "peer_wait": "#e08a2e",
    "net_wait": "#6a8fe8", "sleep": "#8a8f98", "unexplained": "#b9bec7", "lost": "#7d1f1a",
}  # fmt: skip
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --page: #fff; --quiet: #667;
  --line: #d5d9e0; --box: #f3f5f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ec; --page: #15181d; --quiet: #9aa3b0; --line: #363c46; --box: #1f242b; } }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; color: var(--ink); background: var(--page);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; }
.severity { padding: .1rem .4rem; border-radius: .3rem; color: #fff; background: #566; font-size: .8em; }
.critical { background: #a3122a; } .high { background: #c43c1d; } .medium { background: #8a6d00; }
.low { background: #2d6c8c; }
.dim { color: var(--quiet); } .good { color: #2f8f4e; } .warning { color: #b07a00; }
dl { display: grid; grid-template-columns: 7rem 1fr; gap: .1rem .8rem; margin: .2rem 0; }
dt { font-weight: 600; } dd { margin: 0; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } }
pre { margin: .3rem 0; padding: .5rem .7rem; background: var(--box); border-radius: .3rem; overflow-x: auto; }
.bar { display: flex; height: 1.2rem; border-radius: .3rem; overflow: hidden; margin: .5rem 0 .2rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: 0; margin: 0 0 .5rem; list-style: none;
  font-size: .9em; }
.legend i { display: inline-block; width: .7em; height: .7em; margin-right: .35em; border-radius: .15em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .4rem 0; font-size: .95em; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th.left, td.left { text-align: left; }
"""
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>{style}</style></head><body><main>
"""


def as_html(document: Document) -> str:
    """The whole page."""
    head = HEAD.format(title=escape(document.title), style=STYLE)
    return head + body_of(document) + "\n</main></body></html>\n"


def body_of(document: Document, *, colours: bool = True) -> str:
    """What stands in a page; without `colours` no element has a style of its own."""
    blocks = [block for block in document.blocks if colours or not isinstance(block, Bar)]
    return "\n".join(_parts(blocks))


def _parts(blocks: list[Block]) -> Iterator[str]:
    """Fields that follow each other are one list."""
    listing = False
    for block in blocks:
        if isinstance(block, Field) != listing:
            listing = not listing
            yield "<dl>" if listing else "</dl>"
        yield from _written(block)
    if listing:
        yield "</dl>"


def _written(block: Block) -> Iterator[str]:
    match block:
        case Title(text):
            yield f"<h1>{escape(text)}</h1>"
        case Heading(text, severity):
            yield f"<h2>{_severity(severity)}{escape(text)}</h2>"
        case Line(text, tone):
            yield f'<p class="{escape(tone)}">{escape(text)}</p>'
        case Field(label, text, tone, _):
            yield f'<dt>{escape(label)}</dt><dd class="{escape(tone)}">{escape(text)}</dd>'
        case Code(text, _):
            yield f"<pre><code>{escape(text)}</code></pre>"
        case Bar(time_ns):
            yield _bar(time_ns)
        case Rows():
            yield _table(block)
        case Gap():
            return


def _severity(severity: str) -> str:
    if not severity:
        return ""
    return f'<span class="severity {escape(severity.lower())}">{escape(severity)}</span> '


def _bar(time_ns: Mapping[str, int]) -> str:
    parts = percents(time_ns)
    said = {name: escape(bucket_words(name)) for name, _ in parts}
    pieces = "".join(
        f'<div style="width:{percent:.1f}%;background:{_colour(name)}" title="{said[name]}"></div>'
        for name, percent in parts
    )
    names = "".join(
        f'<li><i style="background:{_colour(name)}"></i>{said[name]} {percent:.1f} %</li>'
        for name, percent in parts
    )
    bar = f'<div class="bar" role="img" aria-label="where the time went">{pieces}</div>'
    return f'{bar}<ul class="legend">{names}</ul>'


def _colour(bucket: str) -> str:
    return COLOURS.get(bucket, "#999")


def _table(rows: Rows) -> str:
    head = "".join(_cell("th", at, text, rows) for at, text in enumerate(rows.columns))
    body = "".join(
        "<tr>" + "".join(_cell("td", at, text, rows) for at, text in enumerate(row)) + "</tr>"
        for row in rows.rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(tag: str, at: int, text: str, rows: Rows) -> str:
    left = ' class="left"' if at in rows.left else ""
    return f"<{tag}{left}>{escape(text)}</{tag}>"


# A diagnosis as one HTML file to send on: timeline, flame graph, fixes; nothing is loaded from anywhere.
#
# The page is the dashboard's own code and style, bundled when the package was built. Its policy allows
# exactly
# that script and that style, by their hashes, and no request at all: names that traced programs gave
# themselves are data. Where scripts do not run the plain document is shown.


MOST_BYTES = 2_000_000  # what every mail server lets through, and a phone opens at once
MOST_PLAIN_BYTES = 300_000
TOO_LONG = "<p>This page needs JavaScript. The same as text: ingero explain.</p>"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {script_hash}; \
style-src {style_hash}; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title><style>{style}</style></head><body>
<noscript><div class="report">{plain}</div></noscript>
<script type="application/json" id="answers">{answers}</script>
<script type="module">{script}</script></body></html>
"""


def as_page(document: Document, report: Report, db: Path | None, node: str | None = None) -> str:
    """The whole page; of a package built without the dashboard's pages, the plain document."""
    script, style = _built("report.js"), _built("style.css")
    if script is None or style is None or report.of_several:
        return as_html(document)
    from ingero.serve.answers.shared_report import get_shared_report

    plain = body_of(document, colours=False)

    def page(answers: str) -> str:
        return PAGE.format(
            title=escape(document.title),
            style=style,
            script=script,
            style_hash=_hash(style),
            script_hash=_hash(script),
            plain=plain if len(plain.encode()) <= MOST_PLAIN_BYTES else TOO_LONG,
            answers=answers,
        )

    room = MOST_BYTES - len(page("").encode())
    shared = get_shared_report(db, report, node, lambda answer: len(_embedded(answer).encode()), room)
    return page(_embedded(shared))


def _embedded(answer: object) -> str:
    return _harmless(to_json(answer))


def _built(name: str) -> str | None:
    path = resources.files("ingero.serve.dashboard") / "static" / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _harmless(json: str) -> str:
    """No text in it can end the element it stands in, or open a comment."""
    return json.replace("<", "\\u003c").replace(">", "\\u003e")
