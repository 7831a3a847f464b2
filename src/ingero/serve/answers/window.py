"""Which time a question is about.

`--since` counts back from now while the recording runs, and from its last record
once it has ended: asking about the last five minutes of yesterday's run gives
them. A recording that was killed has no end of its own; it counts as ended when
nothing came for ten seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from ingero.errors import StoreError, UsageError
from ingero.store.reader import Reader, RecordingInfo
from ingero.units import SECOND, clean, parse_duration

SILENCE_NS = 10 * SECOND
LATEST_NS = 9_000_000_000 * SECOND  # the year 2255; SQLite and NumPy have room until 2262


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From and to, Unix-epoch nanoseconds, to excluded."""

    from_ns: int
    to_ns: int
    anchor: str  # now, last-record, recording, given, label: what the range was counted from

    @property
    def length_ns(self) -> int:
        return self.to_ns - self.from_ns


def parse_instant(text: str) -> int:
    """Unix-epoch nanoseconds of `2026-03-01T02:15`, `2026-03-01 02:15:30+01:00` or a number of seconds."""
    text = text.strip()
    try:
        if text.replace(".", "", 1).isdecimal():
            return min(_number(text), LATEST_NS)
        instant = round(datetime.fromisoformat(text).timestamp() * 1e6) * 1000
        return max(min(instant, LATEST_NS), 0)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"cannot read the time {clean(text, 40)!r}",
            hint="Write it like 2026-03-01T02:15:00 (local time), with an offset, or as Unix seconds.",
        ) from error


def local_time(at_ns: int) -> str:
    try:
        return datetime.fromtimestamp(at_ns / SECOND).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at_ns} ns"


def _number(text: str) -> int:
    number = float(text)
    if number >= 2**63:
        raise OverflowError(text)
    return round(number * SECOND) if number < 1e15 else int(float(text) if "." in text else text)


def ended(recording: RecordingInfo, now_ns: int) -> bool:
    return recording.ended_ns is not None or now_ns - recording.last_ns > SILENCE_NS


def time_range(
    reader: Reader,
    since: str | None = None,
    start: str | None = None,
    end: str | None = None,
    now_ns: int | None = None,
) -> TimeRange:
    """The range meant; without any it is the whole last recording, of every node in a merged database."""
    if since is not None and (start is not None or end is not None):
        raise UsageError("--since and --from/--to exclude each other", hint="Give one of them.")
    now_ns = time.time_ns() if now_ns is None else now_ns
    newest = _last_recordings(reader)
    last = max(newest, key=lambda each: each.last_ns)
    live = not ended(last, now_ns)
    until_ns = max(now_ns, last.last_ns + 1) if live else last.last_ns + 1
    started_ns = min(each.started_ns for each in newest)
    if since is not None:
        return TimeRange(until_ns - parse_duration(since), until_ns, "now" if live else "last-record")
    if start is None and end is None:
        return TimeRange(started_ns, until_ns, "recording")
    return _given(started_ns, until_ns, start, end)


def _given(started_ns: int, until_ns: int, start: str | None, end: str | None) -> TimeRange:
    from_ns = started_ns if start is None else parse_instant(start)
    to_ns = until_ns if end is None else parse_instant(end)
    if from_ns >= to_ns and end is None:
        raise UsageError(
            "--from is after the end of the recording", hint=f"It ends at {local_time(until_ns)}."
        )
    if from_ns >= to_ns and start is None:
        raise UsageError(
            "--to is before the start of the last recording",
            hint=f"It starts at {local_time(started_ns)}; --from as well reaches earlier ones.",
        )
    if from_ns >= to_ns:
        raise UsageError("--from must be before --to", hint="Swap them.")
    return TimeRange(from_ns, to_ns, "given")


def _last_recordings(reader: Reader) -> list[RecordingInfo]:
    """The last of each node."""
    newest: dict[int, RecordingInfo] = {}
    for each in reader.recordings():
        if each.node_id not in newest or each.last_ns >= newest[each.node_id].last_ns:
            newest[each.node_id] = each
    if not newest:
        raise StoreError(f"{reader.path} holds no recording", hint="Record one with `sudo ingero trace`.")
    return list(newest.values())
