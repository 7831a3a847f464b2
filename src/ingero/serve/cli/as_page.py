"""A diagnosis as one HTML file to send on: timeline, flame graph, fixes; nothing is loaded from anywhere.

The page is the dashboard's own code and style, bundled when the package was built. Its policy allows exactly
that script and that style, by their hashes, and no request at all: names that traced programs gave
themselves are data. Where scripts do not run the plain document is shown.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ingero.serve.cli.as_html import as_html, body_of
from ingero.serve.cli.output import to_json

if TYPE_CHECKING:
    from ingero.model.report import Report
    from ingero.serve.cli.document import Document

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

    return PAGE.format(
        title=escape(document.title),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        plain=body_of(document, colours=False),
        answers=_harmless(to_json(get_shared_report(db, report, node))),
    )


def _built(name: str) -> str | None:
    path = resources.files("ingero.serve.dashboard") / "static" / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _harmless(json: str) -> str:
    """No text in it can end the element it stands in, or open a comment."""
    return json.replace("<", "\\u003c").replace(">", "\\u003e")
