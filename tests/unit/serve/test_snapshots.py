"""What a person sees, kept as text: the live view and the answers at the usual sizes of a terminal.

A made-up job with a fixed clock, through the real pipeline. `make snapshots` writes the files anew; look
at the difference before you keep it.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.model.live import LiveView, QuietSurface
from ingero.scenarios import demo
from ingero.scenarios.catalogue import BY_NAME
from ingero.serve.cli.main import main
from ingero.serve.tui.app import LiveApp
from tests.screen import screen_text

FOLDER = Path(__file__).parent / "snapshots"
NOW_NS = 1_772_330_400_000_000_000
SIZES = [(80, 24), (120, 40), (200, 50)]
COMMANDS = {
    "explain": ("explain",),
    "per-process": ("explain", "--per-process"),
    "query": ("query",),
}


class Watching(QuietSurface):
    """Keeps every view."""

    takes_the_screen = True

    def __init__(self) -> None:
        super().__init__()
        self.views: list[LiveView] = []

    def update(self, view: LiveView) -> None:
        self.views.append(view)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[LiveView]]:
    """The recording of an incident, and the live view of each of its seconds."""
    surface, db = Watching(), tmp_path_factory.mktemp("played") / "demo.db"
    clock = SimpleNamespace(
        time_ns=lambda: NOW_NS,
        monotonic_ns=lambda: 10**15,
        clock_gettime_ns=lambda _clock: 10**15,
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "time", clock)
        story = demo.Played(BY_NAME["incident"], db, 7, 10_000.0)
        assert demo.run(story, surface, LiveDiagnosis) == 0
    return db, surface.views


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for name, value in {"LANG": "C.UTF-8", "NO_COLOR": "1", "PAGER": "", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LC_ALL", raising=False)


def compare(name: str, text: str) -> None:
    file = FOLDER / f"{name}.txt"
    if os.environ.get("INGERO_RENEW_SNAPSHOTS"):
        file.write_text(text)
    assert file.read_text() == text, f"{name} looks different; make snapshots renews it"


def shown(view: LiveView, size: tuple[int, int], *keys: str) -> str:
    views = [view]

    async def inside() -> str:
        app = LiveApp(lambda: views.pop() if views else None, poll_s=3600)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await pilot.press(*keys)
            await pilot.pause()
            return screen_text(app)

    return asyncio.run(inside())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_live_view_while_something_is_wrong(
    played: tuple[Path, list[LiveView]], size: tuple[int, int]
) -> None:
    text = shown(played[1][14], size)
    compare(f"live-{size[0]}x{size[1]}", text)
    assert "Fix: $" in text.split("python3 4821", 1)[0]
    assert "bound by" in text
    assert "python3 4821" in text


def test_an_open_finding(played: tuple[Path, list[LiveView]]) -> None:
    compare("live-80x24-open", shown(played[1][14], (80, 24), "enter"))


class Terminal(io.StringIO):
    """Somebody looks at what is written here."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("name", COMMANDS)
def test_answers_fit_the_terminal(
    played: tuple[Path, list[LiveView]], monkeypatch: pytest.MonkeyPatch, name: str, columns: int
) -> None:
    out = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "50")
    monkeypatch.setattr(sys, "stdout", out)
    assert main([*COMMANDS[name], "-d", str(played[0])]) == 0
    text = out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    compare(f"{name}-{columns}", text)
    tables = [line for line in text.splitlines() if "│" in line]
    assert max(map(len, tables), default=0) <= columns


def test_without_unicode_tables_are_ascii(
    played: tuple[Path, list[LiveView]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Terminal()
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["explain", "--per-process", "-d", str(played[0])]) == 0
    assert "cuLaunchKernel" in out.getvalue()
    assert out.getvalue().isascii()
