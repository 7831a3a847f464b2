"""When a label of a job held: `step=120`, for the process that said it and those it started.

A process goes by its own labels; one that says nothing, such as a loader's worker or a
rank that its launcher speaks for, by those of the nearest process above it that does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ingero.errors import UsageError
from ingero.serve.answers.whose import NAMES, WORDS
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.units import clean

ABOVE = 16  # generations looked through for one that speaks
_WANTED = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=(.+)")
_RANGE = re.compile(r"(-?\d{1,18})?\.\.(-?\d{1,18})?")
_END = "COALESCE(a.end_ns, MAX(a.start_ns, MIN(COALESCE(p.end_ns, r.last_ns), r.last_ns)))"
_SAID = f"""
    SELECT a.process_id, a.start_ns, {_END} AS end_ns, a.value, a.number
    FROM annotation a
    LEFT JOIN process p ON p.id = a.process_id
    LEFT JOIN recording r ON r.id = a.recording_id
    WHERE a.key_id = (SELECT id FROM string WHERE text = ?) AND a.process_id IS NOT NULL
        AND a.start_ns < ? AND {_END} > ?
    ORDER BY a.process_id, a.start_ns, a.id"""
_PROCESSES = """
    SELECT id, node_id, pid, parent_pid, COALESCE(start_ns, first_seen_ns, 0), start_ns, end_ns FROM process
    ORDER BY COALESCE(start_ns, first_seen_ns, 0), id"""


class Span(NamedTuple):
    """A value of a label, and while it held."""

    start_ns: int
    end_ns: int
    value: str


Held = dict[int, list[Span]]  # by the process's row; in order, none overlaps another


@dataclass(frozen=True, slots=True)
class Label:
    """`step=120`, `step=100..200` or `phase=evaluation`."""

    key: str
    value: str | None = None
    first: int | None = None  # of a range of numbers, whose ends may be open
    last: int | None = None

    def admits(self, value: str, number: int | None) -> bool:
        if self.value is not None:
            return value == self.value
        if number is None:
            return self.first is None and self.last is None  # any value
        return (self.first is None or number >= self.first) and (self.last is None or number <= self.last)


@dataclass(frozen=True, slots=True)
class Labels:
    """What is asked for: only while all of `wanted` held, and for each value of `by`."""

    wanted: tuple[Label, ...] = ()
    by: str | None = None


NO_LABELS = Labels()


def parse_label(text: str) -> Label:
    found = _WANTED.fullmatch(text.strip())
    if not found:
        raise UsageError(
            f"cannot read the label {clean(text, 60)!r}",
            hint="Write it like step=120, step=100..200 or phase=evaluation.",
        )
    key, value = found.groups()
    bounds = _RANGE.fullmatch(value)
    if not bounds:
        return Label(key, value)
    first, last = (None if bound is None else int(bound) for bound in bounds.groups())
    return Label(key, None, first, last)


def parse_labels(texts: Iterable[str], by: str | None = None) -> Labels:
    return Labels(tuple(map(parse_label, texts)), by)


def held(reader: Reader, when: TimeRange, wanted: Label) -> Held:
    """For every process it holds for, within the time asked about; an error where nobody ever said it."""
    rows = reader.rows(_SAID, (wanted.key, when.to_ns, when.from_ns))
    said: Held = {}
    for process_id, start_ns, end_ns, value, number in rows:
        spans = said.setdefault(process_id, [])
        start_ns = max(start_ns, when.from_ns, spans[-1].end_ns if spans else 0)
        end_ns = min(end_ns, when.to_ns)
        if wanted.admits(value, number) and start_ns < end_ns:
            spans.append(Span(start_ns, end_ns, str(value)))
    if not rows:
        raise _never_said(reader, wanted.key)
    return {process_id: spans for process_id, spans in _with_those_below(reader, said) if spans}


def held_by_all(reader: Reader, when: TimeRange, wanted: Iterable[Label], by: str | None = None) -> Held:
    """Where every one of several labels holds, cut by the values of `by` or else of the first."""
    first, *others = [*([Label(by)] if by else []), *wanted]
    found = held(reader, when, first)
    for label in others:
        other = held(reader, when, label)
        both = {each: list(_common(spans, other.get(each, []))) for each, spans in found.items()}
        found = {each: spans for each, spans in both.items() if spans}
    return found


def _common(spans: list[Span], others: list[Span]) -> Iterator[Span]:
    ends = [other.end_ns for other in others]
    for span in spans:
        for other in others[bisect_right(ends, span.start_ns) :]:
            if other.start_ns >= span.end_ns:
                break
            yield Span(max(span.start_ns, other.start_ns), min(span.end_ns, other.end_ns), span.value)


def _with_those_below(reader: Reader, said: Held) -> Iterator[tuple[int, list[Span]]]:
    processes = reader.rows(_PROCESSES)
    by_pid: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for row in processes:
        by_pid.setdefault((row[1], row[2]), []).append(row)
    for row in processes:
        speaker: tuple[Any, ...] | None = row
        for _ in range(ABOVE):
            if speaker is None or speaker[0] in said:
                break
            speaker = _parent(speaker, by_pid)
        if speaker is not None and speaker[0] in said:
            yield row[0], list(_within(said[speaker[0]], row[5], row[6]))


def _within(spans: list[Span], start_ns: int | None, end_ns: int | None) -> Iterator[Span]:
    """Of what another said for it, that while the process lived; unknown is without a bound."""
    for span in spans:
        begun = max(span.start_ns, start_ns or 0)
        over = span.end_ns if end_ns is None else min(span.end_ns, end_ns)
        if begun < over:
            yield Span(begun, over, span.value)


def _parent(
    row: tuple[Any, ...], by_pid: dict[tuple[int, int], list[tuple[Any, ...]]]
) -> tuple[Any, ...] | None:
    """The process that had the parent's PID when this one began."""
    _, node_id, _, parent_pid, start_ns, *_ = row
    lives = by_pid.get((node_id, parent_pid or 0), [])
    return next((each for each in reversed(lives) if each[4] <= start_ns and each[0] != row[0]), None)


def union_ns(spans: Iterable[Span]) -> int:
    """How long any of them held."""
    total, reached = 0, 0
    for span in sorted(spans):
        total += max(0, span.end_ns - max(span.start_ns, reached))
        reached = max(reached, span.end_ns)
    return total


def is_said(reader: Reader, key: str) -> bool:
    """Whether any job of the recording reported it."""
    found = "SELECT 1 FROM annotation WHERE key_id = (SELECT id FROM string WHERE text = ?) LIMIT 1"
    return bool(reader.rows(found, (key,)))


def keys_said(reader: Reader) -> list[str]:
    rows = reader.rows(
        "SELECT text FROM string WHERE id IN (SELECT DISTINCT key_id FROM annotation) ORDER BY text LIMIT 300"
    )
    return [clean(str(text), 40) for (text,) in rows]


def _never_said(reader: Reader, key: str) -> UsageError:
    said = keys_said(reader)
    if key in NAMES and key not in said:
        return UsageError(
            f"{key} is no label that a job reported",
            hint=f"`ingero query --by {key}` groups by it"
            + (f"; --{key} NAME narrows to one of them." if key in WORDS else "."),
        )
    return UsageError(
        f"no job said its {clean(key, 40)} in that time",
        hint=f"Said were {', '.join(said[:10])}."
        if said
        else "Jobs report their steps with `ingero annotate`.",
    )


class LabelTimes(NamedTuple):
    """When labels held: what `query --label` counts and `explain --label` looks at."""

    spans: Held  # exactly, by process
    when: TimeRange  # from the first of them to the last, in whole windows of the recording
    held_ns: int  # how long any of them held; less than `when` where it paused


def label_times(reader: Reader, when: TimeRange, wanted: Iterable[Label]) -> LabelTimes:
    """While all of them held; an error where that never was."""
    held_spans = held_by_all(reader, when, wanted)
    spans = [span for spans in held_spans.values() for span in spans]
    if not spans:
        raise UsageError(
            "the label was not set in that time", hint="`ingero query --by KEY` lists the values there are."
        )
    first_ns, last_ns = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    begun = reader.rows("SELECT MAX(start_ns) FROM window WHERE start_ns <= ?", (first_ns,))[0][0]
    over = reader.rows("SELECT MIN(end_ns) FROM window WHERE end_ns >= ?", (last_ns,))[0][0]
    return LabelTimes(held_spans, TimeRange(begun or first_ns, over or last_ns, "label"), union_ns(spans))
