"""The page that says what can be queried: docs/schema.md, and what assistants read."""

from __future__ import annotations

from ingero.serve.answers.schema import NOTES, VIEWS


def schema_markdown() -> str:
    """The contents of docs/schema.md."""
    lines = [
        "# What can be queried",
        "",
        "Views of a recording, for `ingero query` and the `sqlite3` shell.",
        "",
    ]
    lines += [f"- {note}" for note in NOTES]
    for view in VIEWS:
        lines += ["", f"## {view.name}", "", view.about, "", "| column | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {meaning} |" for name, meaning in view.columns.items()]
    return "\n".join(lines) + "\n"
