"""The live view, headless: it shows a view, and every key does what its label says."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, OptionList, Static

from ingero.errors import PrivilegeError
from ingero.model.finding import SourceLine
from ingero.model.live import (
    HostRow,
    LiveCall,
    LiveView,
    OperationRow,
    ProbedLibrary,
    ProbeSource,
    ProcessRow,
    QuietSurface,
    ThreadRow,
)
from ingero.model.report import Bound
from ingero.serve.terminal import clock_time
from ingero.serve.tui.app import LiveApp
from ingero.serve.tui.screens import FindingScreen, HelpScreen, ProcessScreen, ThreadScreen
from ingero.serve.tui.surface import TuiSurface
from tests.builders import finding
from tests.screen import screen_rows

ROWS = (
    OperationRow("driver", "cuLaunchKernel", 900, 5_000, 9_000, 12_000, 40_000, 0.1),
    OperationRow("driver", "cuMemAlloc", 10, 90_000, 95_000, 99_000, 99_000, 0.2),
)
VIEW = LiveView(
    now_ns=1,
    elapsed_ns=2_000_000_000,
    operations=ROWS,
    processes=(
        ProcessRow(
            7, "python3", 2, 4, {"gpu_wait": 3, "runqueue": 1}, operations=ROWS, culprits=(("stress 9", 5),)
        ),
        ProcessRow(8, "[red]evil", 2, 4, {"host_cpu": 4}),
    ),
    events_per_s=12.0,
)


def run(
    check: Callable[[LiveApp, Pilot[None]], Coroutine[Any, Any, None]],
    *views: LiveView,
    size: tuple[int, int] = (140, 60),
) -> None:
    queue = list(views or (VIEW,))

    async def inside() -> None:
        app = LiveApp(lambda: queue.pop(0) if queue else None, poll_s=3600)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await check(app, pilot)

    asyncio.run(inside())


def cells(app: LiveApp, table: str) -> list[list[str]]:
    widget: DataTable[Any] = app.screen_stack[0].query_one(f"#{table}", DataTable)
    return [[str(cell) for cell in widget.get_row_at(row)] for row in range(widget.row_count)]


def options(app: LiveApp) -> list[str]:
    return [str(option.prompt) for option in app.screen_stack[0].query_one("#items", OptionList).options]


def text(app: LiveApp, name: str) -> str:
    return str(app.screen.query_one(f"#{name}", Static).render())


def test_the_tables_show_the_view_and_empty_parts_are_left_out() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        assert [row[0] for row in cells(app, "driver")] == ["cuMemAlloc", "cuLaunchKernel"]
        assert cells(app, "driver")[1][1:4] == ["900", "5 µs", "9 µs"]
        assert not app.query_one("#nccl").display
        assert "No problem" not in "\n".join(options(app))
        assert "Watching" in options(app)[0]
        assert "12 events/s" in text(app, "status")

    run(check)


def test_s_sorts_by_the_next_column() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("s")
        assert app.sort == "count"
        assert cells(app, "driver")[0][0] == "cuLaunchKernel"

    run(check)


def test_slash_filters_and_escape_clears() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"alloc")
        assert [row[0] for row in cells(app, "driver")] == ["cuMemAlloc"]
        await pilot.press("enter")
        assert "alloc" in text(app, "status")
        await pilot.press("escape")
        assert len(cells(app, "driver")) == 2

    run(check)


def test_letters_typed_into_the_filter_are_no_commands() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"spq?")
        assert app.wanted == "spq?"
        assert app.is_running
        assert not app.paused

    run(check)


def test_p_holds_the_picture() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("p")
        app.poll()
        assert "12 events/s" in text(app, "status")
        assert "PAUSED" in text(app, "title")
        await pilot.press("p")
        app.poll()
        assert "99 events/s" in text(app, "status")

    later = replace(VIEW, events_per_s=99.0)
    run(check, VIEW, later, later)


def test_enter_looks_into_the_chosen_process_and_follows_it() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, ProcessScreen)
        assert "python3 7" in text(app, "about")
        assert "stress 9" in text(app, "culprits")
        app.poll()
        assert "renamed 7" in text(app, "about")
        await pilot.press("escape")
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "[red]evil 8" in text(app, "about")

    process = replace(VIEW.processes[0], comm="renamed")
    run(check, VIEW, replace(VIEW, processes=(process, VIEW.processes[1])))


def test_question_mark_lists_the_keys() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)

    run(check)


def test_findings_and_calls_in_flight_appear_when_there_are_some() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        assert "takes the CPU: 40.0 % of python3 (7), since" in options(app)[0]
        assert "Fix: $ taskset -cp 0-5 100" in options(app)[0]
        assert "ncclAllReduce" in text(app, "in_flight")

    found = finding("Another process takes the CPU", pid=7, comm="python3")
    run(
        check,
        replace(VIEW, findings=(found,), in_flight=(LiveCall(7, 7, "p", "ncclAllReduce", 2_000_000_000),)),
    )


def columns(app: LiveApp, table: str) -> list[str]:
    widget: DataTable[Any] = app.screen_stack[0].query_one(f"#{table}", DataTable)
    return [str(column.label) for column in widget.columns.values()]


def from_line(row: OperationRow) -> OperationRow:
    return replace(row, source=SourceLine("/job/code/train.py", 142, "Model.forward"), source_share=0.83)


def test_an_operation_has_the_line_most_of_its_time_comes_from() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        found = {row[0]: row[-1] for row in cells(app, "driver")}
        assert found == {"cuLaunchKernel": "Model.forward() at train.py:142, 83.0 %", "cuMemAlloc": ""}
        await pilot.press("enter")
        await pilot.pause()
        table: DataTable[Any] = app.screen.query_one("#operations", DataTable)
        assert str(table.get_row_at(0)[-1]) == "Model.forward() at train.py:142, 83.0 %"

    rows = (from_line(ROWS[0]), ROWS[1])
    process = replace(VIEW.processes[0], operations=rows)
    run(check, replace(VIEW, operations=rows, processes=(process,)))


def test_a_narrow_terminal_has_fewer_columns_and_the_line_among_them() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        assert columns(app, "driver") == ["Operation", "Calls", "p50", "p99", "Wall", "Line"]
        assert [row[-1] for row in cells(app, "driver")] == ["2 errors train.py:142", "⚠ p99"]
        table: DataTable[Any] = app.query_one("#driver", DataTable)
        assert table.virtual_size.width <= 80
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert columns(app, "driver")[-1] == "Most time from"
        assert len(cells(app, "driver")) == 2

    failing, spread = from_line(replace(ROWS[1], errors=2)), replace(ROWS[0], flags=("p99",))
    run(check, replace(VIEW, operations=(failing, spread)), size=(80, 24))


@pytest.mark.parametrize("keys", [(), ("question_mark",), ("i",), ("enter",)])
def test_ctrl_c_ends_it_whatever_is_open(keys: tuple[str, ...]) -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        await pilot.pause()
        assert (len(app.screen_stack) > 1) == bool(keys)
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app._exit

    run(check)


FOUND = finding("Another process takes the CPU", pid=7, comm="python3")
OVER_NS = FOUND.last_ns + 60_000_000_000


def test_enter_opens_a_finding_with_its_proof_stack_and_fixes_to_copy() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FindingScreen)
        shown = text(app, "about")
        for words in ("still so", "stress-ng (200) 2.1 s", "forward /home/a/train.py:142", "copy: 2"):
            assert words in shown
        await pilot.press("2")
        assert app.clipboard == "renice -n 19 -p 200"
        await pilot.press("3")
        assert app.clipboard == "renice -n 19 -p 200"

    run(check, replace(VIEW, findings=(FOUND,), looked_ns=FOUND.last_ns))


def test_what_nobody_chose_gives_way_to_a_finding_and_what_somebody_chose_does_not() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        assert options(app)[1].startswith("> python3 7")
        app.poll()
        await pilot.pause()
        assert options(app)[0].startswith("> [HIGH]")
        await pilot.press("down")
        await pilot.pause()
        assert options(app)[1].startswith("> python3 7")
        app.poll()
        await pilot.pause()
        assert options(app)[2].startswith("> python3 7")

    worse = finding("Something worse", kind="disk-wait", pid=7, comm="python3")
    run(check, VIEW, replace(VIEW, findings=(FOUND,)), replace(VIEW, findings=(worse, FOUND)))


def test_who_was_responsible_fits_the_terminal_and_a_narrow_one_has_fewer_columns() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        table: DataTable[Any] = app.query_one("#host", DataTable)
        for width, most in ((80, 3), (120, 6), (170, 8)):
            await pilot.resize_terminal(width, 40)
            await pilot.pause()
            assert len(columns(app, "host")) == most
            assert table.virtual_size.width <= width
            assert cells(app, "host")[0][-1].startswith("busy-neighbour 1")

    row = HostRow("runqueue", 9, 0.9, 9, 1, 1, 1, 1, tuple(f"busy-neighbour {pid}" for pid in (1, 2, 3)))
    run(check, replace(VIEW, host=(row,)), size=(80, 40))


def test_the_worst_finding_and_the_limit_of_a_job_take_a_second_line_where_one_is_too_short() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        found, job = options(app)
        assert found.splitlines()[1].endswith(f"of python3 (7), since {clock_time(long.first_ns)}")
        assert "steps/s" in job.splitlines()[1]
        assert max(map(len, (*found.splitlines(), *job.splitlines()))) <= 80

    long = finding("busy-neighbour (7 processes) takes the CPU that python3 needs", pid=7, comm="python3")
    text = (
        "waiting for a core, due to busy-neighbour (200), 66.3 % of the time, over the last 4 s; 20 steps/s"
    )
    limit = Bound(7, "python3", "runqueue", 0.66, None, None, [], None, 20.0, text=text)
    view = replace(VIEW, processes=VIEW.processes[:1], findings=(long,), bound=(limit,))
    run(check, view, size=(80, 24))


def test_a_finding_that_ended_is_shown_as_ended_also_when_it_is_out_of_reach() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        for _ in range(2):
            shown = options(app)
            assert "Nothing is wrong now." in shown[0]
            assert "[ended " in shown[1]
            assert "Fix" not in shown[1]
            app.poll()
        await pilot.press("enter")
        await pilot.pause()
        assert ", ended " in text(app, "about")

    reached = replace(VIEW, findings=(FOUND,), looked_ns=OVER_NS)
    run(check, reached, replace(reached, findings=(), past=(FOUND,)))


def test_a_key_shows_all_since_the_start_instead_of_the_last_seconds() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        assert cells(app, "driver")[0][1] == "3"
        assert "last 5 s" in text(app, "title")
        assert "100 % waiting for a core" in options(app)[1]
        await pilot.press("a")
        assert cells(app, "driver")[0][1] == "10"
        assert "since the start" in text(app, "title")
        assert "75 % waiting for the GPU" in options(app)[1]

    lately = replace(
        VIEW,
        elapsed_ns=5_000_000_000,
        operations=(replace(ROWS[1], count=3),),
        processes=(replace(VIEW.processes[0], time_ns={"runqueue": 9}),),
    )
    run(check, replace(VIEW, lately=lately))


def test_a_thread_can_be_opened_from_its_process() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, ThreadScreen)
        assert "worker 9  thread of python3 7, feeds the GPU" in text(app, "about")
        await pilot.press("escape", "escape")
        assert len(app.screen_stack) == 1

    thread = ThreadRow(9, "worker", True, 4, {"gpu_wait": 4})
    run(check, replace(VIEW, processes=(replace(VIEW.processes[0], threads=(thread,)),)))


def test_libraries_and_probes_are_behind_a_key() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("i")
        await pilot.pause()
        assert "/usr/lib/libcuda.so.1" in text(app, "about")
        assert "runtime 3" in text(app, "about")

    library, probes = ProbedLibrary("/usr/lib/libcuda.so.1", "driver"), ProbeSource("runtime", 3)
    run(check, replace(VIEW, libraries=(library,), probes=(probes,)))


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (200, 50)])
def test_the_job_is_on_the_screen_however_small_it_is(size: tuple[int, int]) -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        shown = "\n".join("".join(part.text for part in row) for row in screen_rows(app))
        assert "python3 7" in shown
        assert "Another process takes the" in shown

    run(check, replace(VIEW, findings=(FOUND,), looked_ns=FOUND.last_ns), size=size)


def test_without_unicode_everything_is_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "C")
    monkeypatch.delenv("LC_ALL", raising=False)

    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        shown = "".join(part.text for row in screen_rows(app) for part in row)
        assert "python3 7" in shown
        assert shown.isascii()

    run(check, replace(VIEW, findings=(FOUND,)))


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        styles = [part.style for row in screen_rows(app) for part in row if part.style]
        assert styles
        assert all(each.color is None or each.color.is_default for each in styles)
        assert all(each.bgcolor is None or each.bgcolor.is_default for each in styles)

    run(check, replace(VIEW, findings=(FOUND,)))


def test_a_hostile_name_is_shown_as_text() -> None:
    async def check(app: LiveApp, pilot: Pilot[None]) -> None:
        assert cells(app, "driver")[0][0] == "[blink]x"
        assert "[/] 7" in options(app)[1]

    row = OperationRow("driver", "\x1b]0;own\x07[blink]x", 1, None, None, None, None, None)
    run(check, replace(VIEW, operations=(row,), processes=(ProcessRow(7, "[/]", 1, 1, {"sleep": 1}),)))


def headless(monkeypatch: pytest.MonkeyPatch, surface: TuiSurface, *keys: str) -> None:
    """Let the surface's application run without a terminal, pressing `keys`."""
    make = surface.app

    def app() -> LiveApp:
        made = make()
        real = made.run

        async def press(pilot: Pilot[None]) -> None:
            await pilot.press(*keys)

        monkeypatch.setattr(made, "run", lambda: real(headless=True, auto_pilot=press if keys else None))
        return made

    monkeypatch.setattr(surface, "app", app)


class Ending(QuietSurface):
    """Remembers how it ended."""

    ended: tuple[LiveView, int] | None = None

    def end(self, view: LiveView, exit_code: int) -> None:
        self.ended = (view, exit_code)


def test_quitting_stops_the_trace_and_then_tells_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    after = Ending()
    surface = TuiSurface(after)
    headless(monkeypatch, surface, "q")

    def work() -> int:
        assert threading.current_thread() is not threading.main_thread()
        surface.begin(VIEW)
        assert surface.stop_requested.wait(20)
        surface.end(VIEW, 0)
        return 5

    assert surface.run(work) == 5
    assert after.ended == (VIEW, 0)


def test_a_trace_that_ends_closes_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    surface = TuiSurface(QuietSurface())
    headless(monkeypatch, surface)

    def work() -> int:
        surface.begin(VIEW)
        time.sleep(0.1)
        surface.end(VIEW, 0)
        return 0

    assert surface.run(work) == 0


def test_a_refused_trace_opens_no_screen_and_keeps_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    surface = TuiSurface(QuietSurface())
    monkeypatch.setattr(surface, "app", lambda: pytest.fail("the screen was opened"))

    def work() -> int:
        raise PrivilegeError("CAP_BPF is missing", hint="Use sudo.")

    with pytest.raises(PrivilegeError, match="CAP_BPF"):
        surface.run(work)
