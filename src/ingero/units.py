"""Durations, sizes and counts as people write and read them, and text made safe to show.

`m` is a minute in a duration and a mebibyte in a size, so each has its own parser.
Nothing here knows about colours or columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime

from ingero.errors import UsageError

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
MOST_CPUS = 8192  # what Linux can be built for
MOST_CPUS_CHARS, MOST_CPUS_PARTS = 1024, 256
MINUTE, HOUR, DAY, WEEK = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND, 7 * 86_400 * SECOND

_DURATIONS = {
    "ns": 1, "us": US, "µs": US, "ms": MS,
    "s": SECOND, "sec": SECOND, "m": MINUTE, "min": MINUTE,
    "h": HOUR, "d": DAY, "w": WEEK,
}  # fmt: skip
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-zµ]+)")
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]?)(?:i?b)?")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible and direction-changing
    "\ud800-\udfff]+"  # halves of a pair: not writable as UTF-8
)
_TERMINAL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MAX_NS = 2**63 - 1


def parse_duration(text: str) -> int:
    """Nanoseconds of `90s`, `5m`, `5min`, `3d12h`, `250ms`."""
    folded = text.strip().lower()
    total, end = 0.0, 0
    for part in _DURATION.finditer(folded):
        scale = _DURATIONS.get(part[2])
        if part.start() != end or scale is None:
            break
        total += float(part[1]) * scale
        end = part.end()
    if not folded or end != len(folded):
        raise UsageError(
            f"cannot read the duration {clean(text, 40)!r}",
            hint="Write it like 90s, 5m, 1h, 2d, 1w or 3d12h.",
        )
    if total > MAX_NS:
        raise UsageError(f"the duration {clean(text, 40)!r} is too long", hint="The longest is 290 years.")
    return round(total)


def parse_size(text: str) -> int:
    """Bytes of `500m`, `10g`, `0`."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or float(found[1]) * _SIZES[found[2]] > MAX_NS:
        raise UsageError(
            f"cannot read the size {clean(text, 40)!r}", hint="Write it like 500m, 10g, or 0 for no limit."
        )
    return round(float(found[1]) * _SIZES[found[2]])


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}".removesuffix(".0")


def _scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str:
    for scale, unit in scales:
        if abs(value) >= scale * 0.9995:  # 999.96 µs reads better as 1 ms
            return f"{'-' if value < 0 else ''}{_three_digits(abs(value) / scale)} {unit}"
    scale, unit = scales[-1]
    return f"{'-' if value < 0 else ''}{_three_digits(abs(value) / scale)} {unit}"


def format_ns(ns: float | None) -> str:
    """`5.2 µs`, `1.2 ms`, `90 s`, `2.5 min`; a dash where it is not known."""
    if ns is None or not math.isfinite(ns):
        return "-"
    if abs(ns) >= 2 * MINUTE:
        return _scaled(ns, ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")))
    return _scaled(ns, ((SECOND, "s"), (MS, "ms"), (US, "µs"), (1, "ns")))


def format_bytes(count: float | None) -> str:
    """`1.5 GiB`; a dash where it is not known."""
    if count is None or not math.isfinite(count):
        return "-"
    return _scaled(count, ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")))


def format_count(count: float | None) -> str:
    """`11,028`."""
    return "-" if count is None else f"{count:,.0f}"


def format_calls(count: int, exact: bool) -> str:
    """`~11,028` where some were not seen, or not one by one."""
    return format_count(count) if exact else f"~{format_count(count)}"


def format_share(share: float | None) -> str:
    """`4.2 %` of a share between 0 and 1."""
    if share is None or not math.isfinite(share):
        return "-"
    percent = share * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.0f} %" if percent >= 99.95 else f"{percent:.1f} %"


def format_rounded(share: float) -> str:
    """`63 %`, for sentences."""
    return f"{share * 100:.0f} %"


def format_clock(at_ns: int) -> str:
    """The local time of day; the instant may come from a file that anybody wrote."""
    try:
        return datetime.fromtimestamp(at_ns / SECOND).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at_ns} ns"


def clean(text: str | bytes, limit: int = 200) -> str:
    """Text of a traced process, fit for a terminal, a log line or an assistant."""
    if isinstance(text, bytes):
        text = text.split(b"\0", 1)[0].decode("utf-8", "replace")
    text = _CONTROLS.sub(" ", _ESCAPES.sub("", text[: limit * 8 + 64])).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def visible(text: str) -> str:
    """The same text, whole, with characters that drive a terminal or are none replaced."""
    return _TERMINAL.sub("\N{REPLACEMENT CHARACTER}", text)


def cpus_of(text: object) -> tuple[int, ...]:
    """Cores as the kernel lists them (0-3,8), which may have been written by anybody."""
    found: set[int] = set()
    for part in str(text or "")[:MOST_CPUS_CHARS].split(",")[:MOST_CPUS_PARTS]:
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(part) < 16:
            found.update(range(int(first), min(int(last or first), MOST_CPUS) + 1))
    return tuple(sorted(found))


def format_cpus(cpus: Sequence[int]) -> str:
    """The other way."""
    spans: list[list[int]] = []
    for cpu in cpus:
        if spans and spans[-1][1] == cpu - 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
