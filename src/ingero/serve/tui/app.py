"""The live view: what is wrong and its fix first, then every job's last minutes, then its calls.

It is handed `next_view`, asked a few times a second; None means nothing new. It
knows no agent and no clock. Every cell is a Text, because Textual reads plain
strings as markup and a process may be called anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.color import Color
from rich.segment import Segment
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.filter import LineFilter
from textual.widgets import DataTable, Footer, Input, OptionList, Static

from ingero import units
from ingero.model.live import LAYERS, LiveView, OperationRow
from ingero.model.words import bucket_words
from ingero.serve import terminal
from ingero.serve.letters import has_unicode, to_ascii
from ingero.serve.tui import items
from ingero.serve.tui.screens import (
    AboutScreen,
    FindingScreen,
    HelpScreen,
    Overlay,
    ProcessScreen,
    keep_options,
    show_host,
    show_operations,
)

POLL_S = 0.25
LIST_SHARE = 0.65  # of the height: findings and jobs; the rest is for calls
TABLES = ("host", *LAYERS)
SMALL = 30  # lines: fewer messages and findings then
SORTS: dict[str, Callable[[OperationRow], tuple[float, str]]] = {
    "wall": lambda row: (-(row.wall_share or 0), row.op),
    "count": lambda row: (-row.count, row.op),
    "p99": lambda row: (-(row.p99_ns or 0), row.op),
    "max": lambda row: (-(row.max_ns or 0), row.op),
    "name": lambda row: (0, row.op),
}


class Ascii(LineFilter):
    """For terminals without Unicode."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # type: ignore[override]  # noqa: ARG002
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class LiveApp(App[None]):
    """One screen, redrawn from the newest view."""

    TITLE = "ingero"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden hidden; }
    #body { height: 1fr; }
    Static { width: 1fr; height: auto; }
    #items { height: auto; max-height: 65%; border: none; padding: 0; background: $background; }
    #items:focus { border: none; background-tint: $foreground 0%; }
    #items > .option-list--option-highlighted, #items:focus > .option-list--option-highlighted {
        background: $surface; color: $foreground; text-style: none;
    }
    #items > .option-list--option-disabled { color: $foreground; }
    DataTable { height: auto; }
    #filter { display: none; dock: bottom; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit"),
        Binding("enter", "open", "Open"),
        Binding("a", "since", "Now/all"),
        Binding("i", "about", "Attached"),
        Binding("s", "sort", "Sort"),
        Binding("slash", "filter", "Filter"),
        Binding("p", "pause", "Pause"),
        Binding("question_mark", "help", "Help"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def __init__(
        self,
        next_view: Callable[[], LiveView | None],
        finished: Callable[[], bool] = lambda: False,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self._next_view = next_view
        self._finished = finished
        self._poll_s = poll_s
        self._ascii = not has_unicode(os.environ)
        self.view: LiveView | None = None
        self.paused = False
        self.whole = False  # numbers since the start
        self.sort = "wall"
        self.wanted = ""
        self._first = ""  # what is chosen when nobody has chosen

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return [*filters, Ascii()] if self._ascii else filters

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield OptionList(id="items", compact=True, markup=False)
        with VerticalScroll(id="body"):
            yield Static(id="in_flight")
            for table in TABLES:
                yield Static(id=f"{table}_title")
                yield DataTable(id=table, cursor_type="none")
        yield Static(id="status")
        yield Input(id="filter", placeholder="part of an operation's or a process's name")
        yield Footer()

    def on_mount(self) -> None:
        for table in TABLES:
            self._table(table).can_focus = False
        self._items.focus()
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

    @property
    def numbers(self) -> LiveView:
        """What the tables are of: the last seconds, or all of it."""
        assert self.view is not None
        return self.view if self.whole or self.view.lately is None else self.view.lately

    def redraw(self) -> None:
        if self.view is None:
            return
        view, numbers, width = self.view, self.numbers, self.size.width
        # The base screen's widgets, even while another screen lies on top.
        self._static("title", [items.title(view, self.whole, self.paused, width)])
        self._draw_items(view, numbers)
        self._static("in_flight", self._in_flight(view))
        self._static("status", items.status(view, self._view_modes(), width, 2 if self._small else 6))
        host = [row for row in numbers.host if row.ns or row.waits]
        self._title("host", bool(host))
        show_host(self._table("host"), host, width)
        for layer in LAYERS:
            rows = [row for row in numbers.layer(layer) if self._is_wanted(row.op)]
            self._title(layer, bool(rows))
            show_operations(self._table(layer), sorted(rows, key=SORTS[self.sort]), width)
        for screen in self.screen_stack[1:]:
            if isinstance(screen, Overlay):
                screen.follow(view)

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)  # by then the new size is known

    @property
    def _small(self) -> bool:
        return bool(self.size.height < SMALL)

    @property
    def _items(self) -> OptionList:
        return self.screen_stack[0].query_one("#items", OptionList)

    def _draw_items(self, view: LiveView, numbers: LiveView) -> None:
        width = self.size.width - 4  # the mark of what is chosen, and a scroll bar
        found = items.verdict(view, width, items.MOST_FINDINGS if self._small else 8)
        jobs = [row for row in view.processes if self._is_wanted(row.comm)]
        now = {row.pid: row for row in numbers.processes}
        lines = sum(text.plain.count("\n") + 1 for _, text in found)
        rows = items.rows_for(int(LIST_SHARE * self.size.height), len(jobs), lines)
        options = [(f"finding {key}" if key else "", text) for key, text in found]
        options += [
            (f"process {row.pid}", items.job(view, now.get(row.pid, row), width, rows)) for row in jobs
        ]
        mark = self._mark([key for key, _ in options if key])
        keep_options(
            self._items, [(key, _marked(text, bool(key) and key == mark)) for key, text in options], mark
        )

    def _mark(self, keys: Sequence[str]) -> str:
        """What is chosen: the first, which is the worst, until somebody chooses another that is there."""
        chosen = self._items.highlighted_option
        if chosen is not None and chosen.id in keys and chosen.id != self._first:
            return str(chosen.id)
        self._first = next(iter(keys), "")
        return self._first

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_list.id == "items" and self.view is not None:
            self._draw_items(self.view, self.numbers)

    def _is_wanted(self, name: str) -> bool:
        return self.wanted.lower() in name.lower()

    def _view_modes(self) -> list[str]:
        modes = [f"sorted by {self.sort}"] if self.sort != "wall" else []
        return [*modes, f"only names with “{terminal.clean(self.wanted)}”"] if self.wanted else modes

    def _in_flight(self, view: LiveView) -> list[Text]:
        lines = []
        for call in view.in_flight:
            line = Text(f"  {terminal.clean(call.op)}  {units.format_ns(call.duration_ns)}  ", "yellow")
            where = bucket_words(terminal.clean(call.bucket))
            lines.append(line.append(f"{terminal.clean(call.comm)} {call.pid}/{call.tid} {where}"))
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

    def action_sort(self) -> None:
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.redraw()

    def action_since(self) -> None:
        self.whole = not self.whole
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
        self._items.focus()

    def action_open(self) -> None:
        chosen = self._items.highlighted_option
        if self.view is None or chosen is None or not chosen.id:
            return
        what, _, key = chosen.id.partition(" ")
        if what == "process":
            self.push_screen(ProcessScreen(int(key), self.view, self.whole))
            return
        found = next((each for each in (*self.view.findings, *self.view.past) if each.key == key), None)
        if found is not None:
            self.push_screen(FindingScreen(found, self.view))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_list.id == "items":
            self.action_open()

    def action_about(self) -> None:
        if self.view is not None:
            self.push_screen(AboutScreen(self.view))

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.view or LiveView(0, 0)))


def _marked(text: Text, chosen: bool) -> Text:
    """Its first line says which is chosen, without colour too."""
    lines = text.split("\n", allow_blank=True)
    marks = ["> " if chosen else "  ", *["  "] * (len(lines) - 1)]
    return Text("\n").join(
        Text(mark, "bold").append_text(line) for mark, line in zip(marks, lines, strict=True)
    )
