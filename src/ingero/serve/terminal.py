"""How values look on a terminal, for the plain tables and the live view alike.

Everything is a rich Text with explicit styles, never markup: a process may be
called `[red]`. Unknown is a dash, never a zero: units says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rich.text import Text

from ingero import units
from ingero.model.finding import Finding, SourceLine
from ingero.model.live import CardLine, HostRow, LiveView, OperationRow
from ingero.model.words import DROPPED, bucket_words

FULL, EMPTY = "█", "░"
TITLES = {
    "runtime": "CUDA Runtime API",
    "driver": "CUDA Driver API",
    "graph": "CUDA Graph",
    "nccl": "NCCL",
    "python": "Python garbage collector",
    "host": "Host: where the feeding threads' time went",
}
# In the order of the legend, after Okabe and Ito: told apart by people who see fewer colours, too.
BUCKET_STYLES: dict[str, str] = {
    "gpu_wait": "#009e73",
    "cuda_cpu": "#56b4e9",
    "host_cpu": "#3b82d0",
    "runqueue": "#e66100",
    "lock_wait": "#f0e442",
    "disk_wait": "#e69f00",
    "memory_wait": "#cc79a7",
    "peer_wait": "#b79fd8",
    "net_wait": "#88ccee",
    "sleep": "bright_black",
    "unexplained": "white",
    "lost": "#aa4499",
}
SHOWN_COST = 0.001  # of a core, or of a job's time: less is not worth the room
ROUGH = "rough"  # in place of an error that says little
ROUGH_WORDS = f"{ROUGH}: too few of them were seen to count well."
MOST_BOUND = 4  # jobs whose limit is shown
SEVERITY_STYLES = {"CRITICAL": "bold white on red", "HIGH": "bold red", "MEDIUM": "yellow", "LOW": "cyan"}
# Told apart without colour too.
BUCKET_MARKS = dict(zip(BUCKET_STYLES, "█▓▒#Ld=pn·?x", strict=True))


def clean(text: str, limit: int = 120) -> str:
    """Text from a traced process, harmless here."""
    return units.clean(text, limit=limit)


def bar(value: float | None, width: int = 20) -> Text:
    """A share as a bar; red from 90 %."""
    filled = 0 if value is None else max(0, min(width, round(value * width)))
    style = "red" if value is not None and value >= 0.9 else "green"
    return Text("[").append(FULL * filled, style).append(EMPTY * (width - filled), "bright_black").append("]")


def stacked_bar(time_ns: Mapping[str, int], width: int = 50) -> Text:
    """Where time went, one mark per bucket, `width` wide altogether."""
    total = sum(time_ns.values())
    text = Text()
    if total <= 0:
        return text.append("·" * width, "bright_black")
    passed, drawn = 0, 0
    for bucket in ordered(time_ns):
        passed += time_ns[bucket]
        until = round(passed * width / total)
        text.append(BUCKET_MARKS.get(bucket, "?") * (until - drawn), BUCKET_STYLES.get(bucket, "white"))
        drawn = until
    return text


def ordered(time_ns: Mapping[str, int]) -> list[str]:
    """Its buckets as the legend has them; unknown ones last."""
    known = [bucket for bucket in BUCKET_STYLES if bucket in time_ns]
    return known + sorted(set(time_ns) - set(known))


def legend(time_ns: Mapping[str, int]) -> Text:
    """The buckets that took one percent or more, largest first."""
    total = sum(time_ns.values()) or 1
    text = Text()
    for bucket in sorted(time_ns, key=lambda name: -time_ns[name]):
        if time_ns[bucket] / total < 0.01:
            continue
        mark = BUCKET_MARKS.get(bucket, "?")
        text.append(f"{mark} ", BUCKET_STYLES.get(bucket, "white"))
        text.append(f"{bucket_words(clean(bucket))} {units.format_share(time_ns[bucket] / total)}  ")
    return text


def system_line(view: LiveView) -> Text:
    system = view.system
    if system is None:
        return Text("System: not read yet", "bright_black")
    text = (
        Text("System: CPU ")
        .append_text(bar(system.cpu_share))
        .append(f" {units.format_share(system.cpu_share)}")
    )
    text.append(" | Mem ").append_text(bar(system.memory_share)).append(
        f" {units.format_share(system.memory_share)}"
    )
    if system.memory_available_bytes is not None:
        text.append(f" ({units.format_bytes(system.memory_available_bytes)} free)")
    load = "-" if system.load1 is None else f"{system.load1:.1f}"
    cores = f" ({system.cores} cores)" if system.cores else ""
    return text.append(f" | Load {load}{cores} | Swap {units.format_bytes(system.swap_bytes)}")


def card_lines(view: LiveView, most: int = 8) -> list[Text]:
    """Each GPU in a line of its own; of very many the first ones."""
    lines = [_card_line(card) for card in view.cards[:most]]
    rest = len(view.cards) - most
    return [*lines, Text(f"and {rest} more GPUs", "bright_black")] if rest > 0 else lines


def _card_line(card: CardLine) -> Text:
    text = Text(f"GPU {card.gpu_id}: ")
    if card.lost:
        return text.append("does not answer", "bold red")
    text.append_text(bar(card.gpu_share)).append(f" {units.format_share(card.gpu_share)}")
    used, size = (units.format_bytes(value) for value in (card.memory_used_bytes, card.memory_bytes))
    watts = "-" if card.power_mw is None else f"{card.power_mw / 1000:.0f} W"
    limit = "" if card.power_limit_mw is None else f" of {card.power_limit_mw / 1000:.0f}"
    clock = "-" if card.sm_clock_mhz is None else f"{card.sm_clock_mhz} MHz"
    degrees = "-" if card.temperature_c is None else f"{card.temperature_c} °C"
    text.append(f" | Mem {used} of {size} | {clock} | {watts}{limit} | {degrees}")
    return text.append(f" | held by {', '.join(card.held_by)}", "yellow") if card.held_by else text


def header_lines(view: LiveView, most: int = 4) -> list[Text]:
    """Targets, libraries, and probes by source with what was refused."""
    lines = [_listed("Target", [_target_name(t.comm, t.pid, t.container) for t in view.targets], most)]
    if not view.targets:
        ended = [_target_name(p.comm, p.pid, ended=True) for p in view.processes]
        lines = [_listed("Target", ended, most) if ended else Text("Target: no CUDA process yet")]
    for library in view.libraries[:most]:
        lines.append(Text(f"Library: {clean(library.path)}"))
    if len(view.libraries) > most:
        lines.append(Text(f"Library: and {len(view.libraries) - most} more"))
    if view.probes:
        probes = ", ".join(f"{clean(p.source)} {p.attached}" for p in view.probes if p.attached)
        lines.append(Text(f"Probes: {probes or 'none attached'}"))
    for probe in view.probes:
        if probe.refused or (not probe.attached and probe.reason):
            what = f"{probe.refused} of " if probe.attached else ""
            lines.append(Text(f"Not watched: {what}{clean(probe.source)}: {clean(probe.reason)}", "yellow"))
    return lines


def _target_name(comm: str, pid: int, container: str = "", ended: bool = False) -> str:
    where = f" in {clean(container)}" if container else ", ended" if ended else ""
    return f"PID {pid} ({clean(comm)}{where})"


def _listed(label: str, names: Sequence[str], most: int) -> Text:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return Text(f"{label}: {', '.join(names[:most])}{more}")


def operation_cells(row: OperationRow) -> list[Text]:
    """Operation, Count, p50, p95, p99, max, Wall, Flags, Most time from."""
    style = "red" if row.errors else ""
    calls = units.format_calls(row.count, row.exact)
    times = [units.format_ns(value) for value in (row.p50_ns, row.p95_ns, row.p99_ns, row.max_ns)]
    cells = [Text(clean(row.op), style), *map(_number, (calls, *times, units.format_share(row.wall_share)))]
    return [*cells, Text(" ".join(operation_flags(row)), "yellow"), operation_line(row)]


def narrow_operation_cells(row: OperationRow) -> list[Text]:
    """Operation, Count, p50, p99, Wall, flags and line together: what fits into 80 columns."""
    operation, calls, p50, _, p99, _, wall, flags, _ = operation_cells(row)
    if row.source:
        flags.append(" " if flags else "").append(_file_words(row.source), "cyan")
    return [operation, calls, p50, p99, wall, flags]


def count_words(count: int, exact: bool, error: int = 0) -> str:
    """`7,472`, `~53,093 ±2,891`; an error of more than half of it is no range to go by."""
    words = units.format_calls(count, exact)
    if not error:
        return words
    return f"{words} {ROUGH}" if 2 * error > count else f"{words} ±{units.format_count(error)}"


def operation_line(row: OperationRow) -> Text:
    """`forward() at train.py:142, 83 %`: where most of its time comes from."""
    if row.source is None:
        return Text()
    words = Text(place_words(row.source), "cyan")
    return words.append(f", {units.format_share(row.source_share)}", "default")


def place_words(source: SourceLine) -> str:
    """`forward() at train.py:142`: short, the file without its folder."""
    function = clean(source.function, 400).rpartition(".<locals>.")[2]
    return f"{_end_of(function, 28)}() at {_file_words(source)}"


def _file_words(source: SourceLine) -> str:
    file = clean(source.file, 4000).rpartition("/")[2]
    return f"{_end_of(file, 28)}:{source.line}"


def _end_of(text: str, most: int) -> str:
    """Its end tells it from others."""
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _number(text: str) -> Text:
    return Text(text, justify="right")


def operation_flags(row: OperationRow) -> list[str]:
    flags = [f"⚠ {clean(flag)}" for flag in row.flags]
    return [*flags, f"{units.format_count(row.errors)} errors"] if row.errors else flags


def host_cells(row: HostRow) -> list[Text]:
    """Bucket, Waits, p50, p95, p99, max, Wall, Who."""
    name = Text(f"{BUCKET_MARKS.get(row.bucket, '?')} ", BUCKET_STYLES.get(row.bucket, "white"))
    times = [units.format_ns(value) for value in (row.p50_ns, row.p95_ns, row.p99_ns, row.max_ns)]
    who = ", ".join(clean(name, 40) for name in row.who[:3])
    cells = (units.format_count(row.waits or None), *times, units.format_share(row.share))
    return [name.append(bucket_words(clean(row.bucket))), *map(_number, cells), Text(who)]


def finding_line(finding: Finding) -> Text:
    """Severity, title, share of whose time, since when."""
    style = SEVERITY_STYLES.get(finding.severity, "")
    return Text(f"[{clean(finding.severity)}]", style).append(f" {finding_words(finding)}", "default")


def finding_lines(findings: Sequence[Finding], most: int = 3) -> list[Text]:
    """Each in a line, the worst with the line of code they are about below."""
    lines = []
    for number, finding in enumerate(findings):
        lines.append(finding_line(finding))
        if finding.source is not None and number < most:
            lines.append(Text(f"    {place_words(finding.source)}", "cyan"))
    return lines


def bound_lines(view: LiveView) -> list[Text]:
    """What limits each job, the first few."""
    return [
        Text(f"Bound by: {clean(each.comm, 40)} ({each.pid}): {clean(each.text, 200)}")
        for each in view.bound[:MOST_BOUND]
    ]


def finding_words(finding: Finding) -> str:
    """A finding in one line, without its severity."""
    share = finding.effect.wall_share
    lost = f"{units.format_share(share)} of " if share is not None else ""
    who = f"{clean(finding.victim.comm, 40)} ({finding.victim.pid})"
    return f"{clean(finding.title, 160)}: {lost}{who}, since {clock_time(finding.first_ns)}"


def local_time(at_ns: int) -> str:
    """`2026-03-01 02:15:30`, where the reader is."""
    return _local(at_ns, "%Y-%m-%d %H:%M:%S")


def clock_time(at_ns: int) -> str:
    """`02:15:30`, where the reader is."""
    return _local(at_ns, "%H:%M:%S")


def between(from_ns: int, to_ns: int) -> str:
    """`2026-03-01 02:15:30 to 02:20:00`: the day once where it is the same."""
    first, last = local_time(from_ns), local_time(to_ns)
    return f"{first} to {clock_time(to_ns) if first[:10] == last[:10] else last}"


def _local(at_ns: int, form: str) -> str:
    try:
        return datetime.fromtimestamp(at_ns / 1e9).astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):  # a damaged recording may hold any number
        return f"{at_ns} ns"


def footer_lines(view: LiveView) -> list[Text]:
    """Events, what was dropped, own cost, database; what is wrong stands out."""
    text = Text(f"{view.events_per_s:,.0f} events/s, {view.events:,} in {units.format_ns(view.elapsed_ns)}")
    text.append(" | ").append_text(dropped_count(view))
    text.append(f" | {overhead_text(view)} | ").append_text(database_text(view))
    lines = [text]
    if reasons := [(reason, n) for reason, n in sorted(view.losses.items()) if n]:
        lines.append(dropped_reasons(reasons))
    return [*lines, *(Text(f"⚠ {clean(warning, 300)}", "yellow") for warning in view.warnings)]


def dropped_count(view: LiveView, share: bool = True) -> Text:
    """`dropped 12 (0.1 %)`, and red: it is no matter of course."""
    count = sum(view.losses.values())
    part = f" ({units.format_share(view.lost_share)})" if count and share else ""
    return Text(f"{DROPPED} {count:,}{part}", "red" if count else "")


def dropped_reasons(losses: Iterable[tuple[str, int]]) -> Text:
    reasons = ", ".join(f"{clean(reason)} {count:,}" for reason, count in losses)
    return Text(f"{DROPPED.capitalize()}: {reasons}", "red")


def overhead_text(view: LiveView) -> str:
    cost = view.overhead
    if cost.share is None:
        return "overhead not measured"
    limit = "no limit" if cost.budget_share is None else f"limit {100 * cost.budget_share:g} %"
    less = "; reduced to stay within it" if cost.actions else ""
    also = [
        f", {words.format(units.format_share(value))}"
        for words, value in (
            ("ingero itself {} of a core", cost.agent_cpu_share),
            ("jobs waited for it {} of their time", cost.taken_from_job_share),
            ("other programs {}", cost.bystanders_share),
        )
        if value is not None and value >= SHOWN_COST
    ]
    return f"overhead {units.format_share(cost.share)} ({limit}){less}{''.join(also)}"


def database_text(view: LiveView) -> Text:
    database = view.database
    if database.problem:
        return Text(f"db: {clean(database.problem, 200)}", "bold red")
    if database.path is None:
        return Text("not recorded")
    return Text(f"db {clean(database.path)} {units.format_bytes(database.size_bytes)}")
