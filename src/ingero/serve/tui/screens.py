"""What lies on top of the live view: one process in detail, and the keys.

A process's screen follows the live view; it stays with its last numbers when the
process has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from ingero import units
from ingero.model.live import LiveView, OperationRow, ProcessRow
from ingero.serve import terminal

KEYS = (
    ("s", "sort by wall time, count, p99, max, name"),
    ("/", "show only names with some text in them; escape clears it"),
    ("up, down, enter", "choose a process and look into it"),
    ("p", "pause the picture; the recording goes on"),
    ("?", "this page"),
    ("q", "quit: the trace ends and the database is closed"),
)
OPERATION_COLUMNS = ("Operation", "Count", "p50", "p95", "p99", "max", "Wall", "Flags", "Most time from")
NARROW_COLUMNS = ("Operation", "Count", "p50", "p99", "Wall", "Line")
NARROW_BELOW = 110  # columns of the terminal


def headings(names: Sequence[str]) -> list[Text]:
    """Over numbers, which are all but the first and those behind the wall share, to the right."""
    words = names[names.index("Wall") + 1 :]
    inner = [Text(name, justify="right") for name in names[1 : len(names) - len(words)]]
    return [Text(names[0]), *inner, *map(Text, words)]


def show_operations(table: DataTable[Text], rows: Sequence[OperationRow], width: int) -> None:
    """As much of each as a terminal of this width has room for."""
    narrow = width < NARROW_BELOW
    columns = NARROW_COLUMNS if narrow else OPERATION_COLUMNS
    cells = terminal.narrow_operation_cells if narrow else terminal.operation_cells
    table.clear(columns=len(table.columns) != len(columns))
    if not table.columns:
        table.add_columns(*headings(columns))
    for row in rows:
        table.add_row(*cells(row))


class Overlay(ModalScreen[None]):
    """A box that escape closes."""

    DEFAULT_CSS = """
    Overlay { align: center middle; }
    Overlay > VerticalScroll {
        width: 95%; height: 90%; border: round $accent; background: $surface; padding: 1;
    }
    Overlay Static { height: auto; margin-bottom: 1; }
    Overlay DataTable { height: auto; margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Back")]


class HelpScreen(Overlay):
    """The keys."""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            for key, meaning in KEYS:
                yield Static(Text(f"{key:16}", "bold").append(meaning, "not bold"))
        yield Footer()


class ProcessScreen(Overlay):
    """One process: its buckets, threads, operations, and who took its cores."""

    def __init__(self, pid: int, view: LiveView) -> None:
        super().__init__()
        self.pid = pid
        self._view = view
        self._ready = False

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="about")
            yield Static(id="threads")
            yield Static(id="culprits")
            yield DataTable(id="operations", cursor_type="none")
        yield Footer()

    def on_mount(self) -> None:
        table: DataTable[Text] = self.query_one("#operations", DataTable)
        table.can_focus = False
        self._ready = True
        self.show(self._view)

    def show(self, view: LiveView) -> None:
        """Follow the newest view."""
        process = next((row for row in view.processes if row.pid == self.pid), None)
        if process is None or not self._ready:
            return
        self.query_one("#about", Static).update(Text("\n").join(_about(process)))
        self.query_one("#threads", Static).update(Text("\n").join(_threads(process)))
        self.query_one("#culprits", Static).update(Text("\n").join(_culprits(process)))
        table: DataTable[Text] = self.query_one("#operations", DataTable)
        show_operations(table, process.operations, self.app.size.width)


def _about(process: ProcessRow) -> list[Text]:
    name = Text(f"{terminal.clean(process.comm)} (PID {process.pid})", "bold")
    name.append(f"  {units.format_ns(process.wall_ns)} seen", "not bold")
    return [name, terminal.stacked_bar(process.time_ns, 80), terminal.legend(process.time_ns)]


def _threads(process: ProcessRow) -> list[Text]:
    lines = [Text("Threads", "bold")]
    for thread in process.threads:
        feeds = "feeds the GPU " if thread.feeder else "              "
        text = Text(f"{thread.tid:>8} {terminal.clean(thread.comm, 16):16} {feeds}")
        lines.append(text.append_text(terminal.stacked_bar(thread.time_ns, 40)))
    return lines if len(lines) > 1 else []


def _culprits(process: ProcessRow) -> list[Text]:
    lines = [Text(f"{units.format_ns(ns):>10}  {terminal.clean(who)}") for who, ns in process.culprits]
    return [Text("Who had the cores it waited for", "bold"), *lines] if lines else []
