"""The live view as plain text: tables with drawn boxes, as `trace --no-tui` prints them.

A list of rich renderables, so that one console decides about colour and width.
Nothing is computed here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ingero import units
from ingero.model.live import LAYERS, LiveView
from ingero.model.words import bucket_words
from ingero.serve import terminal
from ingero.serve.called import runnable
from ingero.serve.cli.fitting import Fitting
from ingero.serve.cli.harmless import HarmlessConsole
from ingero.serve.cli.next_steps import about
from ingero.serve.cli.options import is_wide

OPERATION_COLUMNS = ("Operation", "Calls", "p50", "p95", "p99", "max", "Wall", "Flags", "Most time from")
HOST_COLUMNS = ("Waiting or running", "Waits ≥1 ms", "p50", "p95", "p99", "max", "Wall", "Who")
PIPE_WIDTH = 120
WIDE = 200


def console(out: TextIO) -> Console:
    """Colour only on a terminal and without NO_COLOR; a fixed width elsewhere."""
    on_terminal = out.isatty()
    width = WIDE if is_wide() else None if on_terminal else PIPE_WIDTH
    plain = not on_terminal or bool(os.environ.get("NO_COLOR"))
    return HarmlessConsole(
        file=out, width=width, no_color=plain, force_terminal=on_terminal, highlight=False, markup=False
    )


def header(view: LiveView) -> list[Any]:
    lines = [Text("Ingero Trace  -  live", "bold"), *terminal.header_lines(view)]
    return [Text(), *map(indented, lines), Text()]


def body(view: LiveView) -> list[Any]:
    """Everything below the header."""
    parts: list[Any] = [terminal.system_line(view), *terminal.card_lines(view), Text()]
    for layer in LAYERS:
        rows = view.layer(layer)
        if rows:
            parts.append(title(layer, sum(row.count for row in rows), all(row.exact for row in rows)))
            cells = (terminal.operation_cells(row) for row in rows)
            parts += [Fitting(OPERATION_COLUMNS, cells, (0, 7, 8)), Text()]
    parts += _host(view) + _processes(view) + _in_flight(view) + _findings(view)
    parts += terminal.footer_lines(view)
    return [indented(part) for part in parts]


def indented(part: Any) -> Any:
    return Padding(part, (0, 0, 0, 2), expand=False) if part else part


def title(layer: str, calls: int, exact: bool = True, error: int = 0) -> Text:
    """An estimate among them makes the sum one."""
    name = terminal.TITLES.get(layer) or terminal.clean(layer)
    return Text(name, "bold").append(f"   Calls: {terminal.count_words(calls, exact, error)}", "not bold")


def _host(view: LiveView) -> list[Any]:
    rows = [row for row in view.host if row.ns or row.waits]
    if not rows:
        return []
    title = Text(terminal.TITLES["host"], "bold")
    return [
        title,
        Fitting(HOST_COLUMNS, (terminal.host_cells(row) for row in rows), (0, len(HOST_COLUMNS) - 1)),
        Text(),
    ]


def _processes(view: LiveView) -> list[Any]:
    parts: list[Any] = []
    for process in view.processes:
        name = f"PID {process.pid} ({terminal.clean(process.comm)})"
        parts.append(Text(f"{name}  {units.format_ns(process.threads_ns)} of feeding threads"))
        parts.append(terminal.stacked_bar(process.time_ns, 60))
        parts += [terminal.legend(process.time_ns), Text()]
    return parts


def _in_flight(view: LiveView) -> list[Any]:
    if not view.in_flight:
        return []
    parts: list[Any] = [Text("In flight for more than a second", "bold yellow")]
    for call in view.in_flight:
        who = f"{terminal.clean(call.comm)} {call.pid}/{call.tid}"
        inside = f", {bucket_words(terminal.clean(call.bucket))}" if call.bucket else ""
        parts.append(Text(f"{terminal.clean(call.op)}  {units.format_ns(call.duration_ns)}  {who}{inside}"))
    return [*parts, Text()]


def _findings(view: LiveView) -> list[Any]:
    bound = terminal.bound_lines(view)
    if not view.findings:
        return [*bound, Text()] if bound else []
    return [*bound, Text("Findings", "bold"), *terminal.finding_lines(view.findings), Text()]


def log_line(view: LiveView) -> Text:
    """The view in one line, for logs."""
    system = view.system
    parts = [
        f"{units.format_ns(view.elapsed_ns)}:",
        f"{len(view.targets)} targets,",
        f"{view.events:,} events ({view.events_per_s:,.0f}/s),",
        f"{terminal.dropped_count(view, share=False).plain},",
        f"{terminal.overhead_text(view)},",
        f"cpu {units.format_share(system.cpu_share if system else None)},",
        terminal.database_text(view).plain,
    ]
    flagged = [
        f"{terminal.clean(row.op)} {flag}"
        for row in view.operations
        for flag in terminal.operation_flags(row)
    ]
    return Text(" ".join(parts) + "".join(f"; {flag}" for flag in flagged[:3]))


def warning_line(warning: str) -> Text:
    return Text(f"⚠ {terminal.clean(warning, 300)}", "yellow")


def next_steps(view: LiveView) -> list[Any]:
    """What to type next, once something was recorded."""
    path = view.database.path
    if path is None or view.database.problem:
        return []
    shown = terminal.clean(path)
    ask = runnable(f"ingero explain{about(Path(shown))}")
    return [Text(), Text(f"Recorded in {shown}"), Text(f"Why was it slow? {ask}")]
