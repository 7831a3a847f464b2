"""Call stacks: compact JSON per stack becomes rows, the innermost frame first.

A frame with a Python file or function is a Python frame; the native frame under it
is the interpreter and says nothing. What cannot be read is counted and left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ingero.store.foreign.work import Work
from ingero.units import clean

MAX_FRAMES = 256
MAX_JSON = 1 << 20
TEXT = 500
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")
Row = tuple[int, int, str, str | None, str | None, int | None, str | None]


def stacks(work: Work) -> None:
    go = work.go
    if not go.has("stack_traces", "hash", "frames"):
        return
    frames = go.text("stack_traces", "frames", MAX_JSON + 1)
    sql = f"SELECT {go.whole('stack_traces', 'hash')}, {frames} FROM stack_traces"
    for number, text in go.rows(sql):
        if number is None or text is None:
            continue  # only addresses: nothing to show
        rows = list(_rows(number, text))
        if not rows:
            work.problems["stack_unreadable"] += 1
        work.out.executemany("INSERT OR IGNORE INTO stack_frame VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _rows(number: int, text: str) -> Iterator[Row]:
    try:
        frames = json.loads(text) if len(text) <= MAX_JSON else None
    except (ValueError, RecursionError):
        return
    if not isinstance(frames, list):
        return
    whole = [frame for frame in frames[:MAX_FRAMES] if isinstance(frame, dict)]
    for depth, frame in enumerate(whole):
        yield (number, depth, *_frame(frame))


def _frame(frame: dict[str, Any]) -> tuple[str, str | None, str | None, int | None, str | None]:
    if _word(frame.get("pf")) or _word(frame.get("pfn")):
        return "python", _word(frame.get("pfn")), _word(frame.get("pf")), _line(frame.get("pl")), None
    symbol, place, line = _word(frame.get("s")), _word(frame.get("f")), _line(frame.get("l"))
    function = _OFFSET.sub("", symbol) if symbol else None
    return ("native", function, place, line, None) if line else ("native", function, None, None, place)


def _word(value: Any) -> str | None:
    return clean(value, TEXT) or None if isinstance(value, str) else None


def _line(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
