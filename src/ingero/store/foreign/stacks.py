"""Call stacks: compact JSON per stack becomes rows, the innermost frame first.

A frame with a Python file or function is a Python frame; the native frame under it
is the interpreter and says nothing. What cannot be read is counted and left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ingero.model.stack import Frame, ResolvedStack
from ingero.store.foreign.work import Work
from ingero.store.stack_rows import StackRows
from ingero.units import clean

MAX_FRAMES = 256
MAX_JSON = 1 << 20
TEXT = 500
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")


def stacks(work: Work) -> None:
    go = work.go
    if not go.has("stack_traces", "hash", "frames"):
        return
    frames = go.text("stack_traces", "frames", MAX_JSON + 1)
    rows, last_ns = StackRows(work.out), max((each.last_ns for each in work.recordings), default=0)
    sql = f"SELECT {go.whole('stack_traces', 'hash')}, {frames} FROM stack_traces"
    for number, text in go.rows(sql):
        if number is None or text is None:
            continue  # only addresses: nothing to show
        whole = tuple(_frames(text))
        if whole:
            rows.save([ResolvedStack(number, whole)], last_ns)
        else:
            work.problems["stack_unreadable"] += 1


def _frames(text: str) -> Iterator[Frame]:
    try:
        frames = json.loads(text) if len(text) <= MAX_JSON else None
    except (ValueError, RecursionError):
        return
    if isinstance(frames, list):
        yield from (_frame(frame) for frame in frames[:MAX_FRAMES] if isinstance(frame, dict))


def _frame(frame: dict[str, Any]) -> Frame:
    name, file = _word(frame.get("pfn")), _word(frame.get("pf"))
    if file or name:
        return Frame("python", name or "", file, _line(frame.get("pl")), None)
    symbol, place, line = _word(frame.get("s")), _word(frame.get("f")), _line(frame.get("l"))
    function = _OFFSET.sub("", symbol) if symbol else ""
    return (
        Frame("native", function, place, line, None) if line else Frame("native", function, None, None, place)
    )


def _word(value: Any) -> str | None:
    return clean(value, TEXT) or None if isinstance(value, str) else None


def _line(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
