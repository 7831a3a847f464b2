"""What a job's message says: checked, cut to size, made harmless. Anybody may have written it.

See ingero.annotate for the other end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ingero.units import clean

MAX_LABELS = 16
MAX_KEY_CHARS = 32
MAX_VALUE_CHARS = 128
MAX_UNSENT = 100_000
LATE_NS = 10_000_000_000  # a job's own clock is believed this far back, and never ahead of ours
_HEAD = re.compile(rb"ingero1 (\d{1,19}) (-1|\d{1,10}) (\d{1,19})")
_KEY = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{MAX_KEY_CHARS - 1}}}")


@dataclass(frozen=True, slots=True)
class Message:
    """`pid`: 0 the sender, -1 the job that called it, else a process it names."""

    at_ns: int  # CLOCK_MONOTONIC
    pid: int
    unsent: int
    labels: dict[str, str]


def parse(raw: bytes, arrived_ns: int) -> Message | None:
    """None where it is none of ours: nothing of it is kept then."""
    head, _, rest = raw.partition(b"\n")
    found = _HEAD.fullmatch(head)
    labels = _labels(rest.split(b"\n", MAX_LABELS)) if found else None
    if found is None or labels is None:
        return None
    at_ns, pid, unsent = map(int, found.groups())
    believed = arrived_ns - LATE_NS <= at_ns <= arrived_ns
    return Message(at_ns if believed else arrived_ns, pid, min(unsent, MAX_UNSENT), labels)


def _labels(lines: list[bytes]) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    if len(lines) > MAX_LABELS:
        return None
    for line in lines:
        key, equals, value = line.decode("utf-8", "replace").partition("=")
        if not equals or not _KEY.fullmatch(key):
            return None
        labels[key] = clean(value, MAX_VALUE_CHARS)
    return labels
