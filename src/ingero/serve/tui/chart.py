"""Seconds as columns: where the time of each went, stacked; pace and GPU as a line below; findings marked.

Told apart by marks as well as by colour. The newest second stands on the right; while there are few,
each is several columns wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from ingero.model.finding import Finding
from ingero.model.live import Second
from ingero.serve import terminal

SECOND = 1_000_000_000
LEVELS = "▁▂▃▄▅▆▇█"
NOTHING = " "
WIDEST = 4  # columns of a second


def columns(seconds: Sequence[Second], width: int) -> list[Second | None]:
    """What each column shows, of the last seconds there is room for; None where there is none."""
    if not seconds:
        return [None] * width
    last_ns = seconds[-1].at_ns
    behind = [round((last_ns - each.at_ns) / SECOND) for each in seconds]
    wide = max(1, min(WIDEST, width // (max(behind) + 1)))
    found: list[Second | None] = [None] * width
    for each, ago in zip(seconds, behind, strict=True):
        end = width - ago * wide
        if ago >= 0 and end >= wide:
            found[end - wide : end] = [each] * wide
    return found


def stacked(cells: Sequence[Second | None], height: int) -> list[Text]:
    """Rows from the top; each second sums to the whole height."""
    piles = [_pile(each.time_ns, height) if each else [] for each in cells]
    rows = []
    for row in range(height):
        text = Text()
        for pile in piles:
            bucket = pile[height - 1 - row] if pile else ""
            mark, style = terminal.BUCKET_MARKS.get(bucket, NOTHING), terminal.BUCKET_STYLES.get(bucket, "")
            text.append(mark, style)
        rows.append(text)
    return rows


def _pile(time_ns: Mapping[str, int], height: int) -> list[str]:
    """A bucket for each cell, from the bottom, as the legend orders them; the largest remainders round up."""
    total = sum(time_ns.values())
    if total <= 0:
        return []
    parts = {bucket: divmod(ns * height, total) for bucket, ns in time_ns.items()}
    counts = {bucket: whole for bucket, (whole, _) in parts.items()}
    for bucket in sorted(parts, key=lambda each: -parts[each][1])[: height - sum(counts.values())]:
        counts[bucket] += 1
    return [bucket for bucket in terminal.ordered(time_ns) for _ in range(counts[bucket])]


def line(values: Sequence[float | None], most: float | None = None) -> Text:
    """One mark per value, the higher the more; `most`: what is a full one."""
    known = [value for value in values if value is not None]
    top = most or max(known, default=0.0)
    text = Text()
    for value in values:
        if value is None or top <= 0:
            text.append(NOTHING)
        else:
            text.append(LEVELS[min(len(LEVELS) - 1, int(value / top * len(LEVELS)))], "cyan")
    return text


def troubled(cells: Sequence[Second | None], findings: Iterable[Finding]) -> Text:
    """A mark under each second in which a finding held."""
    spans = [span for each in findings for span in (each.episodes or [(each.first_ns, each.last_ns)])]
    text = Text()
    for each in cells:
        held = each is not None and any(
            first <= each.at_ns + each.length_ns // 2 < last for first, last in spans
        )
        text.append("!" if held else NOTHING, "bold red")
    return text
