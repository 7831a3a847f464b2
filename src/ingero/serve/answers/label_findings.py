"""Which steps a finding touches, where the job said its steps."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from ingero.errors import UsageError
from ingero.model.finding import Finding, LabelRange
from ingero.serve.answers.labels import Held, Label, Span, held, keys_said
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader

MOST_KEYS = 6


def with_labels(reader: Reader, when: TimeRange, findings: list[Finding]) -> list[Finding]:
    """The same findings, each with what its victim said meanwhile."""
    if not findings or not (keys := keys_said(reader)[:MOST_KEYS]):
        return findings
    said: dict[str, Held] = {}
    for key in keys:
        with suppress(UsageError):  # not in that time
            said[key] = held(reader, when, Label(key))
    rows = reader.rows("SELECT id, pid FROM process")
    numbers: dict[int, list[int]] = {}
    for number, pid in rows:
        numbers.setdefault(pid, []).append(number)
    return [
        msgspec.structs.replace(each, labels=_ranges(each, said, numbers.get(each.victim.pid, [])))
        for each in findings
    ]


def _ranges(finding: Finding, said: dict[str, Held], processes: list[int]) -> list[LabelRange]:
    episodes = finding.episodes or [(finding.first_ns, finding.last_ns)]
    found = []
    for key, spans in said.items():
        mine = (span for process in processes for span in spans.get(process, []))
        if values := _values(mine, episodes):
            found.append(LabelRange(key, values[0], values[-1], len(values)))
    return found


def _values(spans: Iterable[Span], episodes: list[tuple[int, int]]) -> list[str]:
    """Different ones in order: of number where they are numbers, else of time."""
    touched = [
        span
        for span in spans
        if any(span.start_ns < end_ns and span.end_ns > start_ns for start_ns, end_ns in episodes)
    ]
    values = list(dict.fromkeys(span.value for span in sorted(touched)))
    return sorted(values, key=int) if all(map(_is_number, values)) else values


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 20
