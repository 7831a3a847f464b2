"""`explain --per-process`: each process and thread, what it called, what it waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingero import units
from ingero.model.report import Bound, CodeLine, ProcessReport, Report, ThreadLine
from ingero.model.words import bucket_words
from ingero.serve import terminal
from ingero.serve.answers.report_processes import feeds_gpu
from ingero.serve.cli.diagnosis import Verbosity, footer, header, line_words, person
from ingero.serve.cli.document import Block, Document, Field, Gap, Heading, Line, Rows, tidy, time_bar
from ingero.serve.cli.label_words import slowest

CALLS, THREADS, PROCESSES, LINES = 8, 8, 10, 5
CALL_COLUMNS = ("Operation", "Calls", "p50", "p99", "max", "Wall")
LINE_COLUMNS = ("Line", "What it does", "Time", "Times", "Share")
THREAD_COLUMNS = ("Thread", "TID", "Feeds", "Time", "Off-CPU", "Most of it", "Switches")


def breakdown(report: Report, detail: Verbosity) -> Document:
    """What `ingero explain --per-process` prints."""
    document = Document(f"Processes of {tidy(report.node)}")
    document.add(*header(report, detail), Gap())
    for finding in report.findings:
        document.add(Heading(terminal.finding_words(finding), finding.severity))
    if report.findings:
        document.add(Gap())
    if not any(map(feeds_gpu, report.processes)):
        document.add(Line("No CUDA process was seen in that time.", "warning"), Gap())
    watched = [process for process in report.processes if process.threads or process.operations]
    shown = watched if detail.verbose else watched[:PROCESSES]
    for process in shown:
        document.add(*_process(process, _bound_of(report, process), detail), Gap())
    if len(watched) > len(shown):
        document.add(Line(f"More processes, shown with -v: {len(watched) - len(shown)}", "dim"), Gap())
    if report.by is not None:
        document.add(*slowest(report.by, detail.verbose))
    document.add(*_takers([process for process in report.processes if process not in watched]))
    document.add(*footer(report, detail))
    return document


def _process(process: ProcessReport, bound: Bound | None, detail: Verbosity) -> Iterator[Block]:
    place = f" in {tidy(process.container, 60)}" if process.container else ""
    place += f" on {tidy(process.node, 80)}" if process.node else ""
    yield Heading(f"{person(process.comm, process.pid)}{place}")
    if process.cmdline:
        yield Field("Command", tidy(process.cmdline, 1000 if detail.verbose else 240), "dim")
    if process.threads:
        yield from _time(process)
    if process.operations:
        yield from _calls(process, detail)
    if process.lines:
        yield from _lines(process, detail)
    if step := _step_words(process, bound):
        yield Field("Step", step)
    if process.worst_stall is not None:
        stall = process.worst_stall
        at = terminal.clock_time(stall.at_ns)
        yield Field("Stall", f"{units.format_ns(stall.ns)} {tidy(stall.text, 300)}, at {at}", "warning")
    if process.cpu_taken_ns:
        taken = units.format_ns(process.cpu_taken_ns)
        yield Field("CPU taken", f"{taken} while threads that feed a GPU waited for that core", "warning")
    if len(process.threads) > 1 or detail.verbose:
        yield from _threads(process, detail)


def _bound_of(report: Report, process: ProcessReport) -> Bound | None:
    return next((each for each in report.bound if (each.pid, each.node) == (process.pid, process.node)), None)


def _step_words(process: ProcessReport, bound: Bound | None) -> str:
    """Of the same time as the steps a second of what limits it, where those are known."""
    if bound is not None and bound.steps_per_s:
        words = f"{units.format_ns(units.SECOND / bound.steps_per_s)} ({bound.steps_per_s:.3g} steps/s)"
        if not bound.usual_steps_per_s or bound.since_ns is None:
            return words
        before = units.format_ns(units.SECOND / bound.usual_steps_per_s)
        return f"{words} since {terminal.clock_time(bound.since_ns)}, {before} before"
    if process.step is None:
        return ""
    mean, usual = units.format_ns(process.step.now_ns), units.format_ns(process.step.usual_ns)
    return f"{mean} on average, usually {usual}"


def _takers(processes: list[ProcessReport]) -> Iterator[Block]:
    """Those known only for the cores they took from threads that feed a GPU."""
    rows = [
        (
            tidy(each.comm, 40),
            str(each.pid),
            units.format_ns(each.cpu_taken_ns),
            tidy(each.container or "", 60),
        )
        for each in processes
    ]
    if rows:
        yield Rows(("Took cores from them", "PID", "CPU taken", "Container"), rows, (0, 3))
        yield Gap()


def _time(process: ProcessReport) -> Iterator[Block]:
    feeds = process.threads_ns > 0  # of a worker every bucket is in `time`, and 0
    time = process.time if feeds else _sum(process.threads)
    total = sum(time.values())
    whose = "the threads that feed the GPU" if feeds else "its threads; none feeds a GPU"
    yield Field("Watched", f"{units.format_ns(total)} of {whose}, in {units.format_ns(process.wall_ns)}")
    yield time_bar(time)
    yield Field("Off-CPU", off_cpu_words(total, process.off_cpu))
    voluntary, involuntary = _switches(process.threads)
    yield Field(
        "Switches",
        f"{units.format_count(voluntary)} times it gave up its core to wait,"
        f" {units.format_count(involuntary)} times another task was put on its core",
    )
    if process.estimated_ns:
        ns = units.format_ns(process.estimated_ns)
        yield Field("Estimated", f"{ns} fell into times that were not watched")
    if process.gpu_idle_ns is not None:
        yield Field("GPU idle", f"{units.format_ns(process.gpu_idle_ns)} without work given to it")


def off_cpu_words(total: int, away: Mapping[str, int] | None, most: int = 3) -> str:
    """How much, and the largest kinds of it."""
    if total <= 0:
        return "-"
    if away is None:
        return "cannot be told from this recording"
    ns = sum(away.values())
    worth_saying = [name for name in away if away[name] >= total / 1000]
    kinds = sorted(worth_saying, key=lambda name: -away[name])[:most]
    words = ", ".join(
        f"{bucket_words(tidy(name, 40))} {units.format_share(away[name] / total)}" for name in kinds
    )
    spent = f"{units.format_ns(ns)} of {units.format_ns(total)} ({units.format_share(ns / total)})"
    return f"{spent}: {words}" if words else spent


def _sum(threads: list[ThreadLine]) -> dict[str, int]:
    total: dict[str, int] = {}
    for thread in threads:
        for name, ns in thread.time.items():
            total[name] = total.get(name, 0) + ns
    return total


def _switches(threads: list[ThreadLine]) -> tuple[int, int]:
    return sum(t.voluntary_switches for t in threads), sum(t.involuntary_switches for t in threads)


def _calls(process: ProcessReport, detail: Verbosity) -> Iterator[Block]:
    lines = process.operations if detail.verbose else process.operations[:CALLS]
    rows = [
        (
            tidy(line.op, 60),
            terminal.count_words(line.count, line.exact, line.count_error),
            units.format_ns(line.p50_ns),
            units.format_ns(line.p99_ns),
            units.format_ns(line.max_ns),
            units.format_share(line.wall_share),
        )
        for line in lines
    ]
    yield Rows(CALL_COLUMNS, rows)
    if any(terminal.ROUGH in row[1] for row in rows):
        yield Line(terminal.ROUGH_WORDS, "dim")


def _lines(process: ProcessReport, detail: Verbosity) -> Iterator[Block]:
    """The lines that cost most, whatever they spend it on."""
    ordered = sorted(process.lines, key=lambda line: -line.ns)
    shown = ordered if detail.verbose else ordered[:LINES]
    yield Rows(LINE_COLUMNS, [_line(line, detail) for line in shown], (0, 1))
    if len(shown) < len(ordered):
        yield Field("", f"{len(ordered) - len(shown)} more lines, shown with -v", "dim")


def _line(line: CodeLine, detail: Verbosity) -> tuple[str, ...]:
    return (
        line_words(line.function, line.file, line.line, whole=detail.verbose),
        _doing(line),
        units.format_ns(line.ns),
        units.format_count(line.count),
        units.format_share(line.share),
    )


def _doing(line: CodeLine) -> str:
    thread = f", thread {line.tid}" if line.tid is not None else ""
    if line.what == "call":
        return tidy(line.op or "?", 60)
    if line.what == "wait":
        return f"{bucket_words(tidy(line.bucket or '?', 40))}{thread}"
    if line.what == "gil":
        return f"holds the GIL that others waited {units.format_ns(line.held_ns)} for{thread}"
    collecting = line.collecting_share or 0.0
    collector = f", {units.format_share(collecting)} garbage collection" if collecting >= 0.005 else ""
    return f"computes{collector}{thread}"


def _threads(process: ProcessReport, detail: Verbosity) -> Iterator[Block]:
    lines = process.threads if detail.verbose else process.threads[:THREADS]
    yield Rows(THREAD_COLUMNS, [_thread(line) for line in lines], (0, 2, 5))
    if len(lines) < len(process.threads):
        yield Line(f"More threads, shown with -v: {len(process.threads) - len(lines)}", "dim")


def _thread(line: ThreadLine) -> tuple[str, ...]:
    largest = max(line.time, key=lambda name: line.time[name], default="")
    known = line.off_cpu is not None and line.ns > 0
    share = sum((line.off_cpu or {}).values()) / line.ns if known else None
    return (
        tidy(line.comm, 20),
        str(line.tid),
        "yes" if line.feeder else "no",
        units.format_ns(line.ns),
        units.format_share(share),
        bucket_words(tidy(largest, 40)),
        f"{units.format_count(line.voluntary_switches)} given up,"
        f" {units.format_count(line.involuntary_switches)} forced",
    )
