"""What can be chosen in the live view: findings, the worst with its fix, and jobs with their last minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from ingero import units
from ingero.model.finding import Finding
from ingero.model.live import LiveView, ProcessRow, Second
from ingero.model.words import bucket_words
from ingero.serve import terminal
from ingero.serve.answers.shares import percents
from ingero.serve.tui import chart

GUTTER = 14
LEAST_ROWS, MOST_ROWS = 2, 10
AROUND = 7  # lines of a job beside its columns
MOST_FINDINGS = 3  # where there is little room


def verdict(view: LiveView, width: int, most: int = MOST_FINDINGS) -> list[tuple[str, Text]]:
    """Findings as (key, text): what holds now first, each of them once; or that there are none."""
    now = [each for each in view.findings if not view.is_over(each)]
    over = [each for each in (*view.findings, *reversed(view.past)) if view.is_over(each)]
    found = [*now, *over]
    if not found:
        return [("", cut(Text(_nothing(view), "green"), width))]
    shown = [(each.key, _finding(view, each, width, first=not at)) for at, each in enumerate(found[:most])]
    if not now:
        shown.insert(0, ("", cut(Text("Nothing is wrong now.", "green"), width)))
    rest = len(found) - most
    return [*shown, ("", Text(f"and {rest} more findings", "bright_black"))] if rest > 0 else shown


def _nothing(view: LiveView) -> str:
    if view.looked_ns is None:
        return "Watching; the first verdict comes after some seconds."
    return "No problem found so far."


def _finding(view: LiveView, finding: Finding, width: int, first: bool) -> Text:
    if view.is_over(finding):
        words = f"[ended {terminal.clock_time(finding.last_ns)}] {terminal.finding_words(finding)}"
        return cut(Text(words, "bright_black"), width)
    line = terminal.finding_line(finding)
    if not first:
        return cut(line, width)
    lines = wrapped(line, width)
    if fix := fix_words(finding):
        lines.append(cut(Text("  Fix: ").append(fix, "cyan"), width))
    return Text("\n").join(lines)


def fix_words(finding: Finding) -> str:
    """The first fix: its command where there is one."""
    fix = next(iter(finding.fix), None)
    if fix is None:
        return ""
    return terminal.clean(f"$ {fix.command}" if fix.command else fix.text, 400)


def job(view: LiveView, process: ProcessRow, width: int, rows: int) -> Text:
    """Its name and what bounds it, a column per second, pace, GPU and findings below, and the key."""
    room = max(10, width - GUTTER)
    cells = chart.columns(view.seconds(process.pid), room)
    lines = wrapped(_heading(view, process), width)
    scale = _scale(cells)
    lines += [
        Text(f"{scale if not at else '':{GUTTER}}", "bright_black").append_text(row)
        for at, row in enumerate(chart.stacked(cells, rows))
    ]
    paces = [each.steps_per_s if each else None for each in cells]
    if any(value is not None for value in paces):
        lines.append(_gutter("pace", paces[-1], "{:.3g}/s").append_text(chart.line(paces)))
    busy = [each.gpu_busy_share if each else None for each in cells]
    if any(value is not None for value in busy):
        share = None if busy[-1] is None else 100 * busy[-1]
        lines.append(_gutter("GPU", share, "{:.0f} %").append_text(chart.line(busy, most=1.0)))
    marks = chart.troubled(cells, [each for each in view.findings if each.victim.pid == process.pid])
    if marks.plain.strip():
        lines.append(Text(f"{'trouble':{GUTTER}}").append_text(marks))
    return Text("\n").join([*lines, *legend(process.time_ns, width)])


def _scale(cells: Sequence[Second | None]) -> str:
    """How much time the columns show."""
    shown = [each for each in cells if each]
    if not shown:
        return ""
    length_ns = shown[-1].at_ns + shown[-1].length_ns - shown[0].at_ns
    return f"last {max(1, round(length_ns / chart.SECOND))} s"


def _heading(view: LiveView, process: ProcessRow) -> Text:
    name = Text(f"{terminal.clean(process.comm, 16)} {process.pid}", "bold")
    bound = next((each for each in view.bound if each.pid == process.pid), None)
    if bound is not None:
        name.append(f"  bound by {terminal.clean(bound.text, 300)}", "not bold")
    elif all(target.pid != process.pid for target in view.targets):
        name.append("  ended", "not bold bright_black")
    return name


def _gutter(name: str, value: float | None, form: str) -> Text:
    return Text(f"{name} {'-' if value is None else form.format(value):>{GUTTER - len(name) - 3}}  ")


def legend(time_ns: Mapping[str, int], width: int, most: int = 2) -> list[Text]:
    """Mark, share and words of what took one percent or more, in at most so many lines."""
    parts = [part for part in percents(time_ns, decimals=0) if part[1] >= 1] if time_ns else []
    lines = [Text()]
    for name, share in parts:
        mark, style = terminal.BUCKET_MARKS.get(name, "?"), terminal.BUCKET_STYLES.get(name, "white")
        part = Text(f"{mark} ", style).append(f"{share:.0f} % {bucket_words(name)}", "default")
        if lines[-1] and lines[-1].cell_len + 2 + part.cell_len > width:
            if len(lines) == most:
                break
            lines.append(Text())
        lines[-1].append("  " if lines[-1] else "").append_text(part)
    return lines


def rows_for(height: int, jobs: int, findings: int) -> int:
    """How high the columns of each job may be."""
    room = (height - findings) // max(jobs, 1) - AROUND
    return max(LEAST_ROWS, min(MOST_ROWS, room))


def cut(text: Text, width: int) -> Text:
    """In one line of the screen."""
    text.truncate(max(width, 1), overflow="ellipsis")
    return text


def wrapped(text: Text, width: int) -> list[Text]:
    """In one line of the screen, or two; the second one is cut."""
    if text.cell_len <= width:
        return [text]
    at = text.plain.rfind(" ", 1, width + 1)
    if at < 0:
        return [cut(text, width)]
    first, rest = text.divide([at])
    return [first, cut(Text("  ").append_text(rest[1:]), width)]


def title(view: LiveView, whole: bool, paused: bool, width: int) -> Text:
    """Where, whom, how long, and which time the numbers are of."""
    count = len(view.targets)
    parts = [
        f"ingero on {terminal.clean(view.node, 40)}" if view.node else "ingero",
        f"{count} process{'es' if count != 1 else ''}",
        f"traced for {units.format_ns(view.elapsed_ns)}",
        "numbers since the start" if whole or view.lately is None else _lately(view.lately),
    ]
    text = Text(" | ".join(parts), "reverse")
    return cut(text.append("  PAUSED", "bold") if paused else text, width)


def _lately(view: LiveView) -> str:
    return f"numbers of the last {round(view.elapsed_ns / 1e9)} s"


def status(view: LiveView, modes: Sequence[str], width: int, most: int) -> list[Text]:
    """What was dropped and own cost first, then what else is worth knowing, in at most so many lines."""
    first = terminal.dropped_count(view, share=False)
    first.append(f" | {view.events_per_s:,.0f} events/s | {terminal.overhead_text(view)}", "default")
    if modes:
        first.append(f" | {', '.join(modes)}", "bright_black")
    trouble = [terminal.database_text(view)] if view.database.problem else []
    lines = [first, *trouble, *terminal.footer_lines(view)[1:]]
    rest = len(lines) - most
    if rest > 0:
        lines = [*lines[: most - 1], Text(f"{rest + 1} more messages: press i", "yellow")]
    return [cut(each, width) for each in lines]
