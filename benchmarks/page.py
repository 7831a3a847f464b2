"""docs/overhead.md, from what was measured. Nothing on the page is written by hand but its prose."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from benchmarks.figures import Figure, Section, missed, unsure
from benchmarks.machine import Moment

WIDTH = 110
OPENING = """\
# Overhead

What tracing costs, and how fast ingero's parts are. Written by `make bench`; every figure was measured in
one run on the machine described here. Nanoseconds of one machine say little about another: read ratios, and
run it on yours. Real jobs on an H200, untraced against traced: [real-gpu.md](real-gpu.md).
"""


def _table(figures: Sequence[Figure]) -> Iterator[str]:
    yield "| what | measured | target | |"
    yield "|---|---|---|---|"
    for figure in figures:
        verdict = f"**{figure.verdict}**" if figure.met is False else figure.verdict
        yield f"| {figure.what} | {figure.value} | {figure.target} | {verdict} |"


def _percent(moment: Moment) -> str:
    return "unknown" if moment.cpu_pressure is None else f"{moment.cpu_pressure:.1f} %"


def _conditions(machine: dict[str, str], before: Moment, after: Moment) -> Iterator[str]:
    yield "| machine | |"
    yield "|---|---|"
    for name, value in machine.items():
        yield f"| {name} | {value} |"
    yield f"| measured | {before.at} to {after.at} |"
    yield f"| load average before, after | {before.load1:.2f}, {after.load1:.2f} |"
    yield f"| minute before, after with somebody waiting for a core | {_percent(before)}, {_percent(after)} |"
    yield f"| other traces running before, after | {before.other_traces}, {after.other_traces} |"
    yield ""
    if (before.cpu_pressure or 0) > 2 or before.load1 > 0.5 or before.other_traces or after.other_traces:
        yield "The machine was not idle when it began: something else may be in the figures."
        yield ""


def _verdicts(sections: Sequence[Section]) -> Iterator[str]:
    yield "## Targets"
    yield ""
    lines = [line[0].upper() + line[1:] + "." for line in missed(sections)]
    lines += [f"Not measured: {section.title}: {section.problem}." for section in sections if section.problem]
    if not lines:
        yield "Every target was met in this run."
        yield ""
    lines += [line[0].upper() + line[1:] + "." for line in unsure(sections)]
    yield from (f"- {line}" for line in lines)
    yield ""
    yield from _table(
        [figure for section in sections for figure in section.figures if figure.met is not None]
    )
    yield ""


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.title}"
    yield ""
    if section.problem:
        yield f"Not measured: {section.problem}."
        yield ""
        return
    yield from _table(section.figures)
    yield ""
    for note in section.notes:
        yield note
        yield ""
    yield _filled(f"**How.** {section.method}")
    yield ""
    yield _filled(f"**What it can tell.** {section.resolves}")
    yield ""


def page(sections: Sequence[Section], machine: dict[str, str], before: Moment, after: Moment) -> str:
    """The whole page."""
    lines = [OPENING, *_conditions(machine, before, after), *_verdicts(sections)]
    for section in sections:
        lines.extend(_section(section))
    return "\n".join(lines).rstrip("\n") + "\n"


def with_section(text: str, section: Section) -> str:
    """A page of another's prose with this section renewed, or put at its end."""
    made = "\n".join(_section(section)).rstrip("\n") + "\n"
    before, heading, after = text.partition(f"## {section.title}\n")
    if not heading:
        return f"{text.rstrip()}\n\n{made}"
    rest = after.partition("\n## ")
    return f"{before}{made}" + (f"\n## {rest[2]}" if rest[1] else "")
