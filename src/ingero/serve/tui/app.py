"""The live view: header, system line, tables by layer, accounted time, what is in flight.

It is handed `next_view`, asked a few times a second; None means nothing new. It
knows no agent and no clock. Every cell is a Text, because Textual reads plain
strings as markup and a process may be called anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static

from ingero import units
from ingero.model.live import LAYERS, LiveView, OperationRow, ProcessRow
from ingero.serve import terminal
from ingero.serve.tui.screens import HelpScreen, ProcessScreen, headings, show_operations

POLL_S = 0.25
HOST_COLUMNS = ("Waiting or running", "Waits ≥1 ms", "p50", "p95", "p99", "max", "Wall", "Who")
SORTS: dict[str, Callable[[OperationRow], tuple[float, str]]] = {
    "wall": lambda row: (-(row.wall_share or 0), row.op),
    "count": lambda row: (-row.count, row.op),
    "p99": lambda row: (-(row.p99_ns or 0), row.op),
    "max": lambda row: (-(row.max_ns or 0), row.op),
    "name": lambda row: (0, row.op),
}


class LiveApp(App[None]):
    """One screen, redrawn from the newest view."""

    TITLE = "ingero"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #body { height: 1fr; }
    Static { width: 1fr; height: auto; }
    DataTable { height: auto; margin-bottom: 1; }
    #filter { display: none; dock: bottom; }
    #findings, #in_flight { margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit"),
        Binding("s", "sort", "Sort"),
        Binding("slash", "filter", "Filter"),
        Binding("p", "pause", "Pause"),
        Binding("enter", "drill", "Process", show=True),
        Binding("question_mark", "help", "Help"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def __init__(
        self,
        next_view: Callable[[], LiveView | None],
        finished: Callable[[], bool] = lambda: False,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__()
        self._next_view = next_view
        self._finished = finished
        self._poll_s = poll_s
        self.view: LiveView | None = None
        self.paused = False
        self.sort = "wall"
        self.wanted = ""

    def compose(self) -> ComposeResult:
        yield Static(id="header")
        yield Static(id="system")
        with VerticalScroll(id="body"):
            yield Static(id="findings")
            yield Static(id="in_flight")
            yield DataTable(id="processes", cursor_type="row", show_header=False)
            for layer in (*LAYERS, "host"):
                yield Static(id=f"{layer}_title")
                yield DataTable(id=layer, cursor_type="none")
        yield Static(id="status")
        yield Input(id="filter", placeholder="part of an operation's or a process's name")
        yield Footer()

    def on_mount(self) -> None:
        self._table("host").add_columns(*headings(HOST_COLUMNS))
        self._table("processes").add_columns("process", "time")
        for layer in (*LAYERS, "host"):
            self._table(layer).can_focus = False
        self._table("processes").focus()
        self.poll()
        self.set_interval(self._poll_s, self.poll)

    def poll(self) -> None:
        """Take the newest view, and leave when the trace is over."""
        if self._finished():
            self.exit()
            return
        view = self._next_view()
        if view is not None and not self.paused:
            self.view = view
            self.redraw()

    def redraw(self) -> None:
        if self.view is None:
            return
        view = self.view
        # The base screen's widgets, even while another screen lies on top.
        self._static("header", terminal.header_lines(view))
        self._static("system", [terminal.system_line(view), *terminal.card_lines(view)])
        self._static("findings", [*terminal.bound_lines(view), *terminal.finding_lines(view.findings)])
        self._static("in_flight", self._in_flight(view))
        self._static("status", [*self._mode_line(), *terminal.footer_lines(view)])
        self._draw_processes([process for process in view.processes if self._is_wanted(process.comm)])
        for layer in LAYERS:
            rows = sorted((row for row in view.layer(layer) if self._is_wanted(row.op)), key=SORTS[self.sort])
            self._title(layer, bool(rows))
            show_operations(self._table(layer), rows, self.size.width)
        self._draw_host([terminal.host_cells(row) for row in view.host if row.ns or row.waits])
        for screen in self.screen_stack[1:]:
            if isinstance(screen, ProcessScreen):
                screen.show(view)

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)  # by then the new size is known

    def _is_wanted(self, name: str) -> bool:
        return self.wanted.lower() in name.lower()

    def _mode_line(self) -> list[Text]:
        modes = [f"sorted by {self.sort}"]
        modes += [f"only names with “{terminal.clean(self.wanted)}”"] if self.wanted else []
        text = Text(", ".join(modes), "bright_black")
        return [text.append("  PAUSED", "bold yellow") if self.paused else text]

    def _in_flight(self, view: LiveView) -> list[Text]:
        lines = [
            Text(f"  {terminal.clean(call.op)}  {units.format_ns(call.duration_ns)}  ", "yellow").append(
                f"{terminal.clean(call.comm)} {call.pid}/{call.tid} {terminal.clean(call.bucket)}"
            )
            for call in view.in_flight
        ]
        return [Text("In flight for more than a second", "bold yellow"), *lines] if lines else []

    def _static(self, name: str, lines: Sequence[Text]) -> None:
        widget = self.screen_stack[0].query_one(f"#{name}", Static)
        widget.display = bool(lines)
        widget.update(Text("\n").join(lines))

    def _table(self, name: str) -> DataTable[Text]:
        return self.screen_stack[0].query_one(f"#{name}", DataTable)

    def _title(self, name: str, shown: bool) -> None:
        """A table and its title, or neither."""
        self._static(f"{name}_title", [Text(terminal.TITLES[name], "bold")] if shown else [])
        self._table(name).display = shown

    def _draw_host(self, rows: Sequence[Sequence[Text]]) -> None:
        self._title("host", bool(rows))
        table = self._table("host")
        table.clear()
        for row in rows:
            table.add_row(*row)

    def _draw_processes(self, processes: Sequence[ProcessRow]) -> None:
        table = self._table("processes")
        at = table.cursor_row
        table.display = bool(processes)
        table.clear()
        for process in processes:
            table.add_row(*process_cells(process), key=str(process.pid), height=2)
        table.move_cursor(row=min(at, max(0, len(processes) - 1)))

    def action_sort(self) -> None:
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.redraw()

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.redraw()

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def action_clear_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.value = ""
        self._close_filter(box)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.wanted = event.value
        self.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_filter(event.input)

    def _close_filter(self, box: Input) -> None:
        box.display = False
        self._table("processes").focus()

    def action_drill(self) -> None:
        table = self._table("processes")
        if self.view is None or not table.row_count:
            return
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        self.push_screen(ProcessScreen(int(key or 0), self.view))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.data_table.id == "processes":
            self.action_drill()

    def action_help(self) -> None:
        self.push_screen(HelpScreen())


def process_cells(process: ProcessRow) -> list[Text]:
    """Its name, and where its time went as a bar over its legend."""
    name = Text(f"{terminal.clean(process.comm, 16)} ", "bold").append(str(process.pid), "not bold")
    return [
        name,
        Text("\n").join([terminal.stacked_bar(process.time_ns, 60), terminal.legend(process.time_ns)]),
    ]
