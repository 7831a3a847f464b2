"""A finding opened: when, effect, proof, whose fault, stack, and fixes to copy."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ingero import units
from ingero.model.finding import Cause, Finding, Who
from ingero.model.live import LiveView
from ingero.model.words import bucket_words
from ingero.serve import terminal
from ingero.serve.answers.shares import OWN, who_counts
from ingero.serve.tui import items

FRAMES = 20
LABEL = 9


def lines(finding: Finding, view: LiveView, room: int, console: Console) -> Iterator[Text]:
    """From the title to the last fix; what a label says wraps beside it."""
    title, *fields = _whole(finding, view, room)
    yield title
    for each in fields:
        label, text = each.divide([LABEL])
        for line in text.wrap(console, max(20, room - LABEL)):
            yield label.append_text(line)
            label = Text(" " * LABEL)


def _whole(finding: Finding, view: LiveView, room: int) -> Iterator[Text]:
    style = terminal.SEVERITY_STYLES.get(finding.severity, "")
    yield Text(f"[{finding.severity}]", style).append(f" {terminal.clean(finding.title, 300)}", "bold")
    over = view.is_over(finding)
    until = f"ended {terminal.clock_time(finding.last_ns)}" if over else "still so"
    sure = f"confidence {units.format_share(finding.confidence)}"
    yield _field("When", f"since {terminal.clock_time(finding.first_ns)}, {until}; {sure}")
    yield _field("Effect", _effect(finding))
    if finding.time:
        yield Text(f"{'Time':{LABEL}}", "bold").append_text(terminal.stacked_bar(finding.time, 50))
        for line in items.legend(finding.time, room - LABEL, most=4):
            yield Text(" " * LABEL).append_text(line)
    for cause in (each for each in finding.causes if each.ns):
        yield from _cause(cause, finding.victim.pid)
    for proof in finding.evidence:
        yield _field("Proof", terminal.clean(proof.text, 400))
    if finding.who:
        yield _field("Who", _who(finding.who, finding.victim.pid))
    if finding.source:
        place = finding.source
        file = f"{terminal.clean(place.file, 300)}:{place.line}"
        yield _field("Line", f"{terminal.clean(place.function)}() at {file}")
    yield from _stack(finding)
    yield from _fixes(finding)


def _field(label: str, text: str) -> Text:
    return Text(f"{label:{LABEL}}", "bold").append(text, "not bold")


def _effect(finding: Finding) -> str:
    effect, victim = finding.effect, finding.victim
    parts = [f"{terminal.clean(victim.comm, 40)} ({victim.pid})"]
    if effect.op and effect.usual_ns is not None and effect.now_ns is not None:
        usual, now = units.format_ns(effect.usual_ns), units.format_ns(effect.now_ns)
        parts.append(f"{terminal.clean(effect.op)} {usual} → {now}")
    if effect.wall_share is not None:
        parts.append(f"{units.format_share(effect.wall_share)} of its time lost")
    return ", ".join(parts)


def _cause(cause: Cause, own: int) -> Iterator[Text]:
    words = f"{units.format_share(cause.share)} {bucket_words(cause.bucket)} ({units.format_ns(cause.ns)})"
    yield _field("Cause", words)
    for proof in cause.evidence:
        yield Text(" " * LABEL + terminal.clean(proof.text, 400))
    if cause.who:
        yield _field("Who", _who(cause.who, own))


def _who(who: list[Who], own: int) -> str:
    counting = who_counts(who)
    named = [f"{_named(each, own)} {units.format_ns(each.ns)}" for each in counting[:5]]
    more = f" and {len(counting) - 5} more" if len(counting) > 5 else ""
    return ", ".join(named) + more


def _named(who: Who, own: int) -> str:
    pid = f" ({who.pid}{f', {OWN}' if who.pid == own else ''})" if who.pid else ""
    return f"{terminal.clean(who.comm, 40)}{pid}"


def _stack(finding: Finding) -> Iterator[Text]:
    for at, frame in enumerate(finding.stack[:FRAMES]):
        place = f" {terminal.clean(frame.file, 300)}:{frame.line}" if frame.file else ""
        function = terminal.clean(frame.function or frame.module or "unknown", 200)
        yield Text(f"{'Stack' if not at else '':{LABEL}}", "bold").append(function + place, "not bold")


def _fixes(finding: Finding) -> Iterator[Text]:
    number = 0
    gain = finding.gain
    for fix in finding.fix:
        wins = f" (wins {units.format_share(gain.share)})" if gain and fix is finding.fix[0] else ""
        yield _field("Fix", terminal.clean(fix.text, 400) + wins)
        if fix.command:
            number += 1
            yield Text(f"{f'copy: {number}':{LABEL}}", "bright_black").append(
                terminal.clean(fix.command, 2000), "cyan"
            )


def commands(finding: Finding) -> list[str]:
    """What can be copied, in the order shown."""
    return [fix.command for fix in finding.fix if fix.command]
