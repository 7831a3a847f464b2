"""A Report as a document: header, findings worst first, what was lost or not watched.

Three findings with their usual fields fit a screen of 80 by 44; the more findings
there are, the fewer details each gets, and from the fourth on a finding is one
line. -v shows everything. Nothing is computed here but sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingero import units
from ingero.model.finding import Cause, Finding, Who
from ingero.model.hit_cost import ALL_DUE, ALL_THE_TIME, ALL_TIMED, RECORDS, TIMING
from ingero.model.report import GovernorAct, GpuLine, ProcessReport, Report
from ingero.model.words import DROPPED, SOURCES, bucket_words, covered_words
from ingero.serve import terminal
from ingero.serve.answers.own_cost import own_cost_words
from ingero.serve.answers.report_processes import feeds_gpu
from ingero.serve.answers.shares import OWN, at_fault, percents, who_counts
from ingero.serve.cli.document import (
    Block,
    Code,
    Document,
    Field,
    Gap,
    Heading,
    Line,
    Rows,
    Title,
    tidy,
    time_bar,
)
from ingero.serve.cli.label_words import labels_words, slowest
from ingero.serve.cli.statistics import COUNTED_FROM

IN_FULL = 3
FRAMES = 20
ALL_COUNTED = ", all counted"  # how governor/policy.py ends what it says of timing


@dataclass(frozen=True)
class Verbosity:
    """How much to say."""

    verbose: bool = False
    show_sql: bool = False


@dataclass(frozen=True)
class _Room:
    """How many of each a finding may show."""

    causes: int
    proofs: int
    who: int
    fixes: int
    rows: int = 0  # of a field; 0: as many as it takes


ROOM = {1: _Room(4, 3, 6, 4), 2: _Room(2, 1, 4, 2, 2), 3: _Room(1, 1, 3, 1, 1)}
CARDS = 8  # a machine seldom has more of them
EVERYTHING = _Room(1000, 1000, 1000, 1000)


def diagnosis(report: Report, detail: Verbosity) -> Document:
    """What `ingero explain` prints."""
    document = Document(f"Diagnosis of {tidy(report.node)}")
    document.add(*header(report, detail), *_bound(report, detail), Gap())
    if report.findings:
        document.add(*_findings(report, detail))
    elif any(map(feeds_gpu, report.processes)):
        document.add(*_nothing_found(report))
    else:
        document.add(*_nobody(report))
    if report.by is not None:
        document.add(*slowest(report.by, detail.verbose))
    document.add(*_unexplained(report), *footer(report, detail))
    return document


def header(report: Report, detail: Verbosity) -> Iterator[Block]:
    window = report.window
    when = terminal.between(window.from_ns, window.to_ns)
    yield Title(f"Diagnosis of {tidy(report.node, 80)}, {when}")
    counted = COUNTED_FROM.get(window.anchor, tidy(window.anchor, 40))
    yield Line(f"{units.format_ns(report.recorded_ns)} recorded; {counted}", "dim")
    yield Line(f"System: {system_words(report, detail.verbose)}")
    yield from (
        Line(card_words(card, _over(report)))
        for card in report.system.gpus[: None if detail.verbose else CARDS]
    )


def _bound(report: Report, detail: Verbosity) -> Iterator[Block]:
    """What limits each job now, whether something is wrong or not."""
    shown = report.bound if detail.verbose else report.bound[:IN_FULL]
    for each in shown:
        who = person(each.comm, each.pid) + (f" on {tidy(each.node, 80)}" if each.node else "")
        yield Line(f"Bound by: {who}: {tidy(each.text, 300)}")


def system_words(report: Report, verbose: bool = False) -> str:
    system = report.system
    load = "-" if system.load1 is None else f"{system.load1:.1f}"
    cores = f" ({system.cores} cores)" if system.cores else ""
    words = [
        f"CPU {units.format_share(system.cpu_share)}",
        f"Memory {units.format_share(system.memory_share)}",
        f"Load {load}{cores}",
        f"Swap {units.format_bytes(system.swap_bytes)}",
    ]
    if verbose:
        known = [f"{tidy(name, 20)} {units.format_share(value)}" for name, value in system.psi.items()]
        words.append(f"Pressure {', '.join(known)}" if known else "Pressure -")
    return " | ".join(words)


def _over(report: Report) -> str:
    """What the machine's figures are of: jobs' own are of less."""
    return "over the recording" if report.window.anchor == "recording" else "over the range"


def card_words(card: GpuLine, over: str = "") -> str:
    """One card over the range."""
    where = f"{tidy(card.node, 40)} " if card.node else ""
    if card.lost:
        return f"{where}GPU {card.gpu_id}: {tidy(card.name, 40)} did not answer any more"
    watts, clock = card.power_mw, card.sm_clock_mhz
    used = units.format_bytes(card.memory_used_bytes)
    words = [
        f"busy {units.format_share(card.gpu_share)}{f' {over}' if over else ''}",
        f"Memory {used} of {units.format_bytes(card.memory_bytes)}"
        if card.memory_bytes
        else f"Memory {used}",
        "Clock -" if clock is None else f"Clock {clock} MHz",
        "Power -" if watts is None else f"Power {watts / 1000:.0f} W",
        "- °C" if card.temperature_c is None else f"{card.temperature_c} °C",
    ]
    return f"{where}GPU {card.gpu_id}: {tidy(card.name, 40)} | {' | '.join(words)}"


def _findings(report: Report, detail: Verbosity) -> Iterator[Block]:
    full = report.findings if detail.verbose else report.findings[:IN_FULL]
    room = EVERYTHING if detail.verbose else ROOM[len(full)]
    shown: set[tuple[str, int]] = set()  # the victim's time is drawn once
    for finding in full:
        victim = _victim(report, finding)
        with_bar = victim is not None and (finding.node, victim.pid) not in shown
        yield Heading(tidy(finding.title, 200), finding.severity)
        if report.of_several:
            yield Field("Node", tidy(finding.node, 80))
        yield from _finding(finding, victim if with_bar else None, room, detail)
        yield Gap()
        shown.add((finding.node, finding.victim.pid))
    rest = report.findings[len(full) :]
    for finding in rest:
        where = f"{tidy(finding.node, 80)}: " if report.of_several else ""
        yield Heading(f"{where}{terminal.finding_words(finding)}", finding.severity)
    if rest:
        yield Line("-v shows them in full", "dim")
        yield Gap()


def person(comm: str, pid: int | None) -> str:
    return tidy(comm, 40) if pid is None else f"{tidy(comm, 40)} ({pid})"


def _victim(report: Report, finding: Finding) -> ProcessReport | None:
    found = (
        each
        for each in report.processes
        if each.pid == finding.victim.pid and each.time and each.node in (None, finding.node)
    )
    return next(found, None)


def _finding(
    finding: Finding, victim: ProcessReport | None, room: _Room, detail: Verbosity
) -> Iterator[Block]:
    confidence = f"confidence {units.format_share(finding.confidence)}"
    yield Field("When", f"{when_words(finding, detail.verbose)}; {confidence}", rows=room.rows)
    if finding.labels:
        yield Field("Labels", labels_words(finding.labels), rows=room.rows)
    yield Field("Effect", effect_words(finding), rows=room.rows)
    time_ns = finding.time or (victim.time if victim is not None else {})
    if time_ns and victim is not None:
        yield time_bar(time_ns, short=room.rows == 1)
        if detail.verbose:
            yield time_rows(time_ns)
    for proof in finding.evidence[: None if detail.verbose else 2]:
        yield Field("Proof", tidy(proof.text, 400), rows=room.rows)
        if detail.show_sql and proof.sql:
            yield Code(tidy(proof.sql, 4000), "sql")
    for cause in _causes(finding, room):
        yield from _cause(cause, room, detail)
    who = [each for cause in finding.causes for each in cause.who]
    who += [each for each in finding.who if each.pid not in {known.pid for known in who}]
    if not detail.verbose:
        who = at_fault(who, sum(cause.ns for cause in finding.causes))
    if who:
        yield Field("Who", who_words(who, room.who, finding.victim.pid), rows=room.rows)
    if finding.source is not None:
        source = finding.source
        yield Field("Line", line_words(source.function, source.file, source.line, whole=detail.verbose))
    if detail.verbose and finding.stack:
        yield from _stack(finding)
    gain = gain_words(finding)
    if gain and not finding.fix:
        yield Field("Gain", gain)
    for number, fix in enumerate(finding.fix[: room.fixes]):
        wins = f" ({gain})" if gain and not number else ""
        text, end = tidy(fix.text, 400), ""
        if wins and text.endswith((".", ":")):
            text, end = text[:-1], text[-1].strip(".")
        yield Field("Fix", text + wins + end, rows=room.rows and 2)
        if fix.command:
            yield Code(tidy(fix.command, 2000), "sh")
        if fix.code:
            yield Code(tidy(fix.code, 2000), "python")


def line_words(function: str, file: str | None, line: int | None, *, whole: bool = False) -> str:
    """`forward() at train.py:142`; what has no file is a native function."""
    if file is None:
        return tidy(function, 80)
    path = tidy(file, 1000) if whole else _end_of(tidy(file, 1000), 45)
    return f"{tidy(function, 80)}() at {path}:{line}"


def _end_of(path: str, most: int) -> str:
    """Its end says which file it is; folders are whole or not there."""
    if len(path) <= most:
        return path
    end = path[1 - most :]
    return f"…{end[max(end.find('/'), 0) :]}"


def when_words(finding: Finding, verbose: bool = False) -> str:
    lasted = sum(end - start for start, end in finding.episodes) or finding.last_ns - finding.first_ns
    words = f"{terminal.clock_time(finding.first_ns)} for {units.format_ns(lasted)}"
    if len(finding.episodes) > 1:
        words += f" in {len(finding.episodes)} episodes until {terminal.clock_time(finding.last_ns)}"
        if verbose:
            each = [
                f"{terminal.clock_time(start)} {units.format_ns(end - start)}"
                for start, end in finding.episodes
            ]
            words += f" ({', '.join(each)})"
    return words


def effect_words(finding: Finding) -> str:
    """Whose what, from how long to how long, and what it costs."""
    effect = finding.effect
    words = [person(finding.victim.comm, finding.victim.pid)]
    if effect.op is not None:
        before = f" {units.format_ns(effect.usual_ns)} →" if effect.usual_ns is not None else ""
        change = f"{before} {units.format_ns(effect.now_ns)}"
        words[0] += f": {tidy(effect.op, 60)}"
        words[0] += change if effect.usual_ns is not None or effect.now_ns is not None else ""
    if effect.wall_share is not None:
        words.append(f"{units.format_share(effect.wall_share)} of its time lost")
    elif effect.excess_ns is not None:
        words.append(f"{units.format_ns(effect.excess_ns)} lost")
    return ", ".join(words)


def gain_words(finding: Finding) -> str:
    """What fixing it wins; empty where nobody knows."""
    gain = finding.gain
    return f"wins {units.format_ns(gain.ns)}, {units.format_share(gain.share)}" if gain else ""


def _causes(finding: Finding, room: _Room) -> list[Cause]:
    """The unexplained part is said too where there is room for it."""
    proven = [cause for cause in finding.causes if cause.bucket != "unexplained"]
    rest = [cause for cause in finding.causes if cause.bucket == "unexplained" and cause.share >= 0.005]
    return (proven[: room.causes] + rest) if room.causes > 1 else proven[:1] or rest


def _cause(cause: Cause, room: _Room, detail: Verbosity) -> Iterator[Block]:
    words = f"{units.format_share(cause.share)} {bucket_words(tidy(cause.bucket, 40))}"
    words += f" ({units.format_ns(cause.ns)})"
    proofs = cause.evidence if detail.show_sql else cause.evidence[: room.proofs]
    if cause.via and not room.rows:
        words += f", along {' ← '.join(tidy(name, 60) for name in cause.via)}"
    first = f": {tidy(proofs[0].text, 400)}" if proofs else ""
    yield Field("Cause", words + first, rows=0 if detail.show_sql else room.rows and 2)
    for number, proof in enumerate(proofs):
        if number:
            yield Field("", tidy(proof.text, 400))
        if detail.verbose and proof.event_ids:
            yield Field("", f"events {', '.join(tidy(each, 60) for each in proof.event_ids[:20])}", "dim")
        if detail.show_sql and proof.sql:
            yield Code(tidy(proof.sql, 4000), "sql")


def who_words(who: Sequence[Who], most: int, own: int | None = None) -> str:
    """Each with its seconds and container, longest first; `own` is the job's process."""
    counting = who_counts(who)
    words = [f"{_named(each, own)} {units.format_ns(each.ns)}" for each in counting[:most]]
    more = f" and {len(counting) - most} more" if len(counting) > most else ""
    return ", ".join(words) + more


def _named(who: Who, own: int | None) -> str:
    if own is not None and who.pid == own:
        return f"{tidy(who.comm, 40)} ({own}, {OWN})"
    return person(who.comm, who.pid) + (f" in {tidy(who.container, 60)}" if who.container else "")


def _stack(finding: Finding) -> Iterator[Block]:
    for number, frame in enumerate(finding.stack[:FRAMES]):
        where = f" at {tidy(frame.file, 200)}:{frame.line}" if frame.file else ""
        module = f" in {tidy(frame.module, 100)}" if frame.module and not where else ""
        name = tidy(frame.function or "?", 120)
        yield Field("" if number else "Stack", f"[{tidy(frame.kind, 20)}] {name}{where}{module}")


def time_rows(time_ns: dict[str, int]) -> Rows:
    """Where time went, in words."""
    rows = [
        (bucket_words(tidy(name, 40)), units.format_ns(time_ns[name]), f"{percent:.1f} %")
        for name, percent in percents(time_ns)
    ]
    return Rows(("Where the time went", "Time", "Share"), rows)


def _nothing_found(report: Report) -> Iterator[Block]:
    """The answer and the evidence for it."""
    if report.unexplained:
        yield Line("No cause could be proven.", "warning")
    else:
        whole = not report.losses and not report.not_watched
        yield Line("No problem found." if whole else "No problem found in what was watched.", "good")
    feeding = [process for process in report.processes if feeds_gpu(process)]
    for process in feeding[:IN_FULL]:
        calls, kinds = sum(line.count for line in process.operations), len(process.operations)
        yield Field(
            "Watched",
            f"{person(process.comm, process.pid)} for {units.format_ns(process.wall_ns)},"
            f" {units.format_count(calls)} calls of {kinds} {'operation' if kinds == 1 else 'operations'}",
        )
        if process.step is not None:
            step = process.step
            yield Field("Step", f"{units.format_ns(step.now_ns)}, {units.format_count(step.count)} steps")
        if process.operations:
            yield Field("Most time", _operation_words(process))
        if process.time:
            yield time_bar(process.time)
    if len(feeding) > IN_FULL:
        yield Line(f"and {len(feeding) - IN_FULL} more processes: --per-process shows them", "dim")
    yield Gap()


def _operation_words(process: ProcessReport) -> str:
    line = process.operations[0]
    return (
        f"{tidy(line.op, 60)}: p50 {units.format_ns(line.p50_ns)}, p99 {units.format_ns(line.p99_ns)},"
        f" {units.format_share(line.wall_share)} of the wall time"
    )


def _nobody(report: Report) -> Iterator[Block]:
    yield Line("No CUDA process was seen in that time, so there is nothing to explain.", "warning")
    watched = [process for process in report.processes if process.operations]
    for process in watched[:IN_FULL]:
        who = f"{person(process.comm, process.pid)} for {units.format_ns(process.wall_ns)}"
        yield Field("Watched", f"{who}: it made no CUDA call")
    if not watched:
        yield Field("Try", "trace the job from its start")
        yield Code("sudo ingero trace -- python train.py")
    yield Gap()


def _unexplained(report: Report) -> Iterator[Block]:
    for each in report.unexplained:
        who = person(each.victim.comm, each.victim.pid)
        who += f" on {tidy(each.node, 80)}" if each.node else ""
        yield Field(
            "Unproven",
            f"{who} {units.format_share(each.wall_share)} slower than usual since"
            f" {terminal.clock_time(each.first_ns)}: {tidy(each.text, 300)}",
            "warning",
        )
    if report.unexplained:
        yield Gap()


def footer(report: Report, detail: Verbosity) -> Iterator[Block]:
    """What was dropped, what tracing cost, what was not covered."""
    dropped = ", ".join(f"{tidy(loss.reason, 40)} {units.format_count(loss.count)}" for loss in report.losses)
    if report.unfinished:
        dropped = f"{dropped or 'nothing'} until the last stored second; what came later is unknown"
    cost = overhead_words(report, detail.verbose)
    yield Field(
        DROPPED.capitalize(),
        f"{dropped or 'nothing'}; {cost}",
        "warning" if dropped else "dim",
    )
    if own := own_cost_words(report.overhead):
        yield Field("Own cost", own, "dim")
    blind = _not_covered(report)
    if detail.verbose:
        yield from (
            Field("Not covered", f"{'; '.join(what)} ({why})", "warning") for why, what in blind.items()
        )
    elif blind:
        why, hidden = next(iter(blind.items()))
        rest = sum(map(len, blind.values())) - 1
        of_source = _source_words(report, len(hidden))
        rest += 1 - len(hidden) if of_source else 0
        words = of_source or f"{hidden[0]} ({why})"
        more = f" and {rest} more, -v shows them" if rest else ""
        yield Field("Not covered", f"{words}{more}", "warning")


def _source_words(report: Report, hides: int) -> str | None:
    """What is missing itself, where it hides several kinds of problem."""
    source, said, why = report.not_watched[0].why.partition(" is not recorded: ")
    if not said or hides < 2 or source not in SOURCES:
        return None
    why = tidy(why, 300).removeprefix("NVML: ")
    return f"{SOURCES[source]}: {why} (hides {hides} kinds of problem)"


def _not_covered(report: Report) -> dict[str, list[str]]:
    """By reason: one missing source may hide several kinds."""
    found: dict[str, list[str]] = {}
    for each in report.not_watched:
        what, why = covered_words(tidy(each.what, 1000), tidy(each.why, 300))
        found.setdefault(why, []).append(what)
    return found


def _manner(what: str) -> str:
    """Fewer records, fewer calls timed, or a part of the time."""
    return next((each for each in (RECORDS, TIMING) if what.startswith(each)), "looks")


def overhead_words(report: Report, verbose: bool = False) -> str:
    """What tracing cost; what was reduced for it only where asked for: few can make use of it."""
    overhead = report.overhead
    budget = f"{100 * overhead.budget:g} %" if overhead.budget is not None else ""
    if overhead.share is not None:
        words = (
            f"tracing cost {units.format_share(overhead.share)} of the traced threads' time"
            f"{f' (limit {budget})' if budget else ''}"
        )
    elif overhead.hits_per_s is not None:
        words = f"{units.format_count(overhead.hits_per_s)} probe hits/s; their cost was not recorded"
    else:
        words = "what tracing cost was not recorded"
    # of several how it was at the end: what they name may have changed on the way
    last = {_manner(each.what): each for each in overhead.actions}
    less = [each for each in last.values() if each.after not in (ALL_DUE, ALL_TIMED, ALL_THE_TIME)]
    if not less:
        return words
    words += f"; reduced to stay within {budget or 'its budget'}"
    return f"{words}: {'; '.join(_reduced(less))}" if verbose else words


def _reduced(less: Sequence[GovernorAct]) -> Iterator[str]:
    """Each in a few words; a function that is watched part of the time is counted then alone."""
    partly = any(_manner(each.what) not in (RECORDS, TIMING) for each in less)
    for each in less:
        manner, after = _manner(each.what), tidy(each.after, 60)
        what = tidy(each.what.removeprefix(TIMING), 300)
        if manner == TIMING and partly:
            after = f"{after.removesuffix(ALL_COUNTED)} while they are watched"
        elif manner != RECORDS and manner != TIMING:
            after = f"watched {after} when the recording ended"
        yield f"{what}: {after}"
