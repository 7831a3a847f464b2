"""An answer as text of a bounded size: an assistant's memory is short.

What does not fit is left out at the ends of the longest lists, which are in order of
importance, and the answer says how much is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from ingero.serve.mcp.quoting import CLOSE

Detail = Literal["brief", "full"]
BYTES: dict[str, int] = {"brief": 8_000, "full": 60_000}
_SHORTER = (200, 80, 40, 20)  # characters, where lists are not what makes it long

Answer = dict[str, Any]


def fitted(answer: Answer, detail: Detail = "brief") -> str:
    """JSON, one line per part, within the size of `detail`."""
    text = _encoded(answer)
    while len(text.encode()) > BYTES[detail]:
        if not _leave_out(answer):
            return _shortened(answer, BYTES[detail])
        text = _encoded(answer)
    return text


def _encoded(answer: Answer) -> str:
    parts = (f"{_json(key)}:{_json(value)}" for key, value in answer.items() if value is not None)
    return "{" + ",\n".join(parts) + "}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _leave_out(answer: Answer) -> bool:
    """Shorten the largest list; False when there is none."""
    lists = [(len(_json(found)), path, found) for path, found in _lists(answer, "") if found]
    # A list with one entry is an answer; only when nothing else is left does it go.
    candidates = [each for each in lists if len(each[2]) > 1] or lists
    if not candidates:
        return False
    _, path, largest = max(candidates, key=lambda each: each[0])
    count = max(1, len(largest) // 4)
    del largest[-count:]
    missing = answer.setdefault("left_out", {})
    missing[path] = missing.get(path, 0) + count
    return True


def _lists(value: Any, path: str) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, list):
        yield path, value
        for each in value:
            yield from _lists(each, path)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _lists(each, f"{path}.{key}" if path else key)


def _shortened(answer: Answer, most: int) -> str:
    for limit in _SHORTER:
        text = _encoded(_clipped(answer, limit))
        if len(text.encode()) <= most:
            return text
    return _json({"error": "the answer is too large", "hint": "Ask for less: a limit, fewer columns."})


def _clipped(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        end = "…" + value[-1:] if value.endswith(CLOSE) else "…"
        return value if len(value) <= limit else value[: limit - len(end)] + end
    if isinstance(value, list):
        return [_clipped(each, limit) for each in value]
    if isinstance(value, dict):
        return {key[:limit]: _clipped(each, limit) for key, each in value.items()}
    return value
