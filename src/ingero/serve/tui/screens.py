"""What lies on top of the live view: a finding, a process, a thread, what is attached, the keys.

Each follows the live view; it stays with its last numbers when what it shows has gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, OptionList, Static
from textual.widgets.option_list import Option

from ingero import units
from ingero.model.finding import Finding
from ingero.model.live import HostRow, LiveView, OperationRow, ProcessRow, ThreadRow
from ingero.serve import terminal
from ingero.serve.tui import chart, finding, items

KEYS = (
    ("up, down", "choose a finding or a process"),
    ("enter", "open it: proof, stack and fixes; threads and calls"),
    ("1 to 9", "in an open finding: copy that fix"),
    ("a", "numbers of the last seconds, or of all since the start"),
    ("i", "what is attached, what was dropped, messages, the machine and its GPUs"),
    ("s", "sort calls by wall time, count, p99, max, name"),
    ("/", "show only names with some text in them; escape clears it"),
    ("tab", "go to the tables of calls, to scroll them"),
    ("p", "pause the picture; the recording goes on"),
    ("q", "quit: the trace ends and the database is closed"),
)
OPERATION_COLUMNS = ("Operation", "Calls", "p50", "p95", "p99", "max", "Wall", "Flags", "Most time from")
NARROW_COLUMNS = ("Operation", "Calls", "p50", "p99", "Wall", "Line")
HOST_COLUMNS = ("Waiting or running", "Waits ≥1 ms", "p50", "p95", "p99", "max", "Wall", "Who")
NARROW_BELOW, WIDE_FROM = 110, 160  # columns of the terminal
FEWER_HOST = {"Waits ≥1 ms", "p50", "p95", "p99", "max"}, {"p95", "max"}  # left out: narrow, not wide
CHART_ROWS = 6
SCROLL_BAR = 2


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


def show_host(table: DataTable[Text], rows: Sequence[HostRow], width: int) -> None:
    """Who was responsible stands last and takes the room that is left."""
    left_out = set() if width >= WIDE_FROM else FEWER_HOST[width >= NARROW_BELOW]
    columns = [name for name in HOST_COLUMNS if name not in left_out]
    kept = [HOST_COLUMNS.index(name) for name in columns]
    cells = [[every[at] for at in kept] for every in map(terminal.host_cells, rows)]
    table.clear(columns=len(table.columns) != len(columns))
    if not table.columns:
        table.add_columns(*headings(columns))
    taken = [max([len(name), *(row[at].cell_len for row in cells)]) for at, name in enumerate(columns[:-1])]
    room = width - sum(taken) - 2 * len(columns) - SCROLL_BAR  # each has a space on both sides
    for row in cells:
        table.add_row(*row[:-1], items.cut(row[-1], room))


class Overlay(ModalScreen[None]):
    """Fills the screen; escape closes it. `show` is called with every new view."""

    DEFAULT_CSS = """
    Overlay > VerticalScroll { width: 100%; height: 1fr; background: $surface; padding: 0 1; }
    Overlay Static { height: auto; margin-bottom: 1; }
    Overlay DataTable { height: auto; margin-bottom: 1; }
    Overlay OptionList { height: auto; max-height: 12; margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("ctrl+c", "app.quit", show=False, priority=True),  # what lies on top hides the keys below it
    ]

    def __init__(self, view: LiveView, whole: bool = False) -> None:
        super().__init__()
        self.view, self.whole = view, whole
        self._ready = False

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="about")
        yield Footer()

    def on_mount(self) -> None:
        self.prepare()
        self._ready = True
        self.follow(self.view)

    def follow(self, view: LiveView) -> None:
        self.view = view
        if self._ready:
            self.show()

    def prepare(self) -> None:
        """Its widgets are there, and nothing is drawn yet."""

    def show(self) -> None:
        """Draw `self.view`."""

    def write(self, name: str, lines: Iterable[Text]) -> None:
        self.query_one(f"#{name}", Static).update(Text("\n").join(lines))

    @property
    def room(self) -> int:
        return int(self.app.size.width) - 4


class HelpScreen(Overlay):
    """The keys."""

    def show(self) -> None:
        self.write("about", (Text(f"{key:12}", "bold").append(meaning, "not bold") for key, meaning in KEYS))


class AboutScreen(Overlay):
    """What is attached, what was dropped, what the machine does."""

    def show(self) -> None:
        view = self.view
        parts = [*terminal.header_lines(view, most=20), Text(), terminal.system_line(view)]
        self.write("about", [*parts, *terminal.card_lines(view), Text(), *terminal.footer_lines(view)])


class FindingScreen(Overlay):
    """One finding."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy(1)", "Copy the fix"),
        *(Binding(str(number), f"copy({number})", "", show=False) for number in range(1, 10)),
    ]

    def __init__(self, opened: Finding, view: LiveView) -> None:
        super().__init__(view)
        self.finding = opened

    def show(self) -> None:
        known = (*self.view.findings, *self.view.past)
        self.finding = next((each for each in known if each.key == self.finding.key), self.finding)
        self.write("about", finding.lines(self.finding, self.view, self.room, self.app.console))

    def action_copy(self, number: int) -> None:
        commands = finding.commands(self.finding)
        if number > len(commands):
            self.notify(f"No command {number} here.", severity="warning", markup=False)
            return
        self.app.copy_to_clipboard(commands[number - 1])
        self.notify(f"Copied: {terminal.clean(commands[number - 1], 200)}", markup=False)


class ProcessScreen(Overlay):
    """One process: its last minutes, threads, who took its cores, and its calls."""

    def __init__(self, pid: int, view: LiveView, whole: bool = False) -> None:
        super().__init__(view, whole)
        self.pid = pid

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="about")
            yield OptionList(id="threads", compact=True, markup=False)
            yield Static(id="culprits")
            yield DataTable(id="operations", cursor_type="none")
        yield Footer()

    def prepare(self) -> None:
        table: DataTable[Text] = self.query_one("#operations", DataTable)
        table.can_focus = False
        self.query_one("#threads", OptionList).focus()

    @property
    def process(self) -> ProcessRow | None:
        chosen = self.view if self.whole or self.view.lately is None else self.view.lately
        found = next((row for row in chosen.processes if row.pid == self.pid), None)
        return found or next((row for row in self.view.processes if row.pid == self.pid), None)

    def show(self) -> None:
        process = self.process
        if process is None:
            return
        seen = Text(f"numbers of {units.format_ns(process.wall_ns)}", "bright_black")
        self.write("about", [items.job(self.view, process, self.room, CHART_ROWS), seen])
        self.write("culprits", _culprits(process))
        table: DataTable[Text] = self.query_one("#operations", DataTable)
        show_operations(table, process.operations, self.app.size.width)
        keep_options(
            self.query_one("#threads", OptionList),
            [(str(thread.tid), _thread(thread, self.room)) for thread in process.threads],
        )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.app.push_screen(ThreadScreen(self.pid, int(event.option.id or 0), self.view, self.whole))


class ThreadScreen(ProcessScreen):
    """One thread: its last minutes where it feeds the GPU, its time, what it is in the middle of."""

    def __init__(self, pid: int, tid: int, view: LiveView, whole: bool = False) -> None:
        super().__init__(pid, view, whole)
        self.tid = tid

    def compose(self) -> ComposeResult:
        yield from Overlay.compose(self)

    def prepare(self) -> None: ...

    def show(self) -> None:
        process = self.process
        thread = next((each for each in process.threads if each.tid == self.tid), None) if process else None
        if process is None or thread is None:
            return
        feeds = "feeds the GPU" if thread.feeder else "does not feed the GPU"
        lines = [
            Text(f"{terminal.clean(thread.comm)} {thread.tid}", "bold").append(
                f"  thread of {terminal.clean(process.comm)} {process.pid}, {feeds}", "not bold"
            )
        ]
        seconds = self.view.seconds(self.pid, self.tid)
        if seconds:
            lines += chart.stacked(chart.columns(seconds, self.room), CHART_ROWS)
        else:
            lines.append(terminal.stacked_bar(thread.time_ns, min(self.room, 60)))
        lines += items.legend(thread.time_ns, self.room, most=4)
        lines += [
            Text(f"in {terminal.clean(call.op)} for {units.format_ns(call.duration_ns)}", "yellow")
            for call in self.view.in_flight
            if call.tid == self.tid
        ]
        lines += [terminal.finding_line(each) for each in self.view.findings if each.victim.tid == self.tid]
        self.write("about", lines)


def keep_options(chooser: OptionList, options: Sequence[tuple[str, Text]], mark: str = "") -> None:
    """`mark` is chosen, or what was; an empty key cannot be."""
    chosen = chooser.highlighted_option.id if chooser.highlighted_option else None
    ids = [option.id for option in chooser.options]
    wanted = [key or None for key, _ in options]
    if ids == wanted:
        for at, (_, text) in enumerate(options):
            chooser.replace_option_prompt_at_index(at, text)
        if mark and chosen != mark:
            chooser.highlighted = wanted.index(mark)
        return
    chooser.clear_options()
    chooser.add_options(Option(text, id=key or None, disabled=not key) for key, text in options)
    keys = [key for key in wanted if key]
    if keys:
        chooser.highlighted = wanted.index(mark or (chosen if chosen in keys else keys[0]))


def _thread(thread: ThreadRow, width: int) -> Text:
    feeds = "feeds the GPU " if thread.feeder else " " * 14
    text = Text(f"{thread.tid:>8} {terminal.clean(thread.comm, 16):16} {feeds}")
    return text.append_text(terminal.stacked_bar(thread.time_ns, max(10, min(40, width - 42))))


def _culprits(process: ProcessRow) -> list[Text]:
    lines = [Text(f"{units.format_ns(ns):>10}  {terminal.clean(who)}") for who, ns in process.culprits]
    return [Text("Who had the cores it waited for", "bold"), *lines] if lines else []
