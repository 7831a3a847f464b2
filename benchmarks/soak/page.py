"""The table of a soak in docs/reliability.md, from its samples.

python -m benchmarks.soak.page FOLDER      also of a run that still goes on
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import reliability
from benchmarks.soak.facts import Facts, facts, samples
from benchmarks.soak.sample import Sample

WARM_S = 600.0  # before that caches fill, which is no growth
MOMENTS = ((0.0, "start"), (600.0, "10 min"), (3600.0, "1 h"))
MB = 1e6


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    of: Callable[[Sample], float]
    form: str
    limit_per_h: float | None = None  # growth beyond this is a problem


ROWS = (
    Row("resident memory, MB", lambda each: each.rss_bytes / MB, "{:.1f}", 4.0),
    Row("memory of its own, MB", lambda each: each.uss_bytes / MB, "{:.1f}", 4.0),
    Row("threads", lambda each: each.threads, "{:.0f}", 1.0),
    Row("open descriptors", lambda each: each.descriptors, "{:.0f}", 4.0),
    Row("keepers and other children", lambda each: each.children, "{:.0f}", 2.0),
    Row("BPF maps", lambda each: each.maps, "{:.0f}", 1.0),
    Row("BPF programs", lambda each: each.programs, "{:.0f}", 1.0),
    Row("BPF links", lambda each: each.links, "{:.0f}", 4.0),
    Row("kernel memory of maps and programs, MB", lambda each: each.kernel_bytes / MB, "{:.1f}", 2.0),
    Row("database with its log, MB", lambda each: each.database_bytes / MB, "{:.1f}"),
    Row("jobs that run", lambda each: each.jobs, "{:.0f}"),
)


def slope_per_h(found: list[Sample], of: Callable[[Sample], float]) -> float | None:
    """A straight line through everything after the warm-up; None: too short to say."""
    warm = [each for each in found if each.at_s >= WARM_S]
    if len(warm) < 30:
        return None
    line = np.polyfit([each.at_s / 3600 for each in warm], [of(each) for each in warm], 1)
    return float(line[0])


def _moments(found: list[Sample]) -> list[tuple[str, list[Sample]]]:
    """Each moment as the samples of the minute after it: a single one may lie."""
    columns = []
    for at_s, name in MOMENTS:
        near = [each for each in found if at_s <= each.at_s < at_s + 60]
        columns.append((name, near))
    last = found[-1].at_s
    columns.append((f"end ({last / 60:.0f} min)", [each for each in found if each.at_s >= last - 60]))
    return columns


def _cpu_share(found: list[Sample]) -> float:
    spent, length = found[-1].cpu_s - found[0].cpu_s, found[-1].at_s - found[0].at_s
    return 100 * spent / length if length else 0.0


def grown(found: list[Sample]) -> list[str]:
    problems = []
    for row in ROWS:
        slope = slope_per_h(found, row.of)
        if slope is not None and row.limit_per_h is not None and slope > row.limit_per_h:
            problems.append(f"{row.what} grows by {slope:.2f} an hour, limit {row.limit_per_h:g}")
    return problems


def table(found: list[Sample]) -> list[str]:
    columns = _moments(found)
    lines = [
        "| the long trace | " + " | ".join(name for name, _ in columns) + " | per hour | limit |",
        "|---|" + "--:|" * (len(columns) + 2),
    ]
    for row in ROWS:
        cells = [
            row.form.format(float(np.median([row.of(each) for each in near]))) if near else ""
            for _, near in columns
        ]
        slope = slope_per_h(found, row.of)
        cells.append("too short to say" if slope is None else f"{slope:+.2f}")
        cells.append("" if row.limit_per_h is None else f"{row.limit_per_h:g}")
        lines.append(f"| {row.what} | " + " | ".join(cells) + " |")
    shares = [
        f"{_cpu_share(part):.1f}" if len(part) > 1 else "" for part in ([*found[:60]], [*found[-60:]], found)
    ]
    lines += [
        "",
        f"Agent, percent of one core: first ten minutes {shares[0]}, last ten {shares[1]}, all {shares[2]}.",
    ]
    return lines


def _said(known: Facts, found: list[Sample]) -> str:
    losses = ", ".join(f"{count:,} {reason}" for reason, count in sorted(known.losses.items()))
    return (
        f"Began {known.began}, lasted {found[-1].at_s / 60:.0f} minutes (seed {known.seed}): "
        f"{known.jobs:,} jobs in as many containers came and went, {known.short_traces} short traces "
        f"ran beside the long one, which kept its database below {known.max_db} and was "
        f"scraped {len(found):,} times. "
        + (f"Lost: {losses}. " if losses else "")
        + (
            f"Problems: {'; '.join(known.problems)}."
            if known.problems
            else "No job failed, nothing was left behind."
        )
    )


def section(folder: Path) -> tuple[str, list[str]]:
    """The text, and what grew."""
    found, known = samples(folder), facts(folder)
    problems = grown(found)
    verdict = [] if not problems else ["", "Grew: " + "; ".join(problems) + "."]
    return "\n".join([_said(known, found), "", *table(found), *verdict]), problems


def write(folder: Path) -> None:
    reliability.write("soak", section(folder)[0])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
