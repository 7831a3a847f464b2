"""Lines of code as an assistant reads them; nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ingero.model.report import CodeLine
from ingero.model.words import bucket_words
from ingero.serve.mcp.quoting import data, word
from ingero.units import format_bytes, format_count, format_ns, format_share

BRIEF, FULL = 3, 15  # lines of each kind


def place(function: str | None, file: str | None, line: int | None) -> str | None:
    """`forward() at train.py:142`."""
    where = f" at {file}:{line}" if file and line else f" at {file}" if file else ""
    return data(f"{function or '?'}(){where}", 200)


def code_lines(lines: Sequence[CodeLine], full: bool) -> dict[str, list[str]]:
    """The lines that cost most: those that call, compute, wait, or hold the interpreter's lock."""
    kinds = {"calls": "call", "on_a_core": "cpu", "waits": "wait", "holds_the_gil": "gil"}
    found = {
        title: [_line(each) for each in _heaviest(lines, what)[: FULL if full else BRIEF]]
        for title, what in kinds.items()
    }
    return {title: words for title, words in found.items() if words}


def _heaviest(lines: Iterable[CodeLine], what: str) -> list[CodeLine]:
    return sorted((each for each in lines if each.what == what), key=lambda each: -each.ns)


def _line(line: CodeLine) -> str:
    return f"{place(line.function, line.file, line.line)}: {format_ns(line.ns)}, {_of_what(line)}"


def _of_what(line: CodeLine) -> str:
    share, thread = format_share(line.share), f"thread {line.tid}"
    if line.what == "call":
        size = f", {format_bytes(line.bytes)}" if line.bytes else ""
        return f"{share} of {word(line.op)}, {format_count(line.count)} calls{size}"
    if line.what == "wait":
        bucket = str(line.bucket)
        return f"{share} of its {bucket} ({bucket_words(bucket)}), {thread}"
    if line.what == "gil":
        return f"{share} of {thread} with the lock, for which others waited {format_ns(line.held_ns)}"
    collecting = line.collecting_share
    return f"{share} of {thread}" + (f", {format_share(collecting)} collecting garbage" if collecting else "")
