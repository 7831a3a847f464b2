"""What a person sees, kept as text: the live view and the answers at the usual sizes of a terminal.

A made-up job with a fixed clock, through the real pipeline. `make snapshots` writes the files anew; look
at the difference before you keep it.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.model.check_line import Check
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.layout import Why
from ingero.model.live import DatabaseStatus, LiveView, QuietSurface
from ingero.model.window import Annotation, Container, Unwatchable
from ingero.scenarios import demo
from ingero.scenarios.catalogue import BY_NAME
from ingero.serve.answers import checks
from ingero.serve.cli import start
from ingero.serve.cli.explain import print_diagnosis
from ingero.serve.cli.main import main
from ingero.serve.cli.surfaces import PlainSurface
from ingero.serve.tui.app import LiveApp
from ingero.store.writer import Writer
from tests.builders import (
    OPERATIONS,
    SECOND,
    call,
    fixed_clock,
    operation,
    process,
    thread,
    window,
)
from tests.screen import screen_text

FOLDER = Path(__file__).parent / "snapshots"
NOW_NS = 1_772_330_400_000_000_000
SIZES = [(80, 24), (120, 40), (200, 50)]
COLUMNS = [80, 120, 200]
# What is typed, and which recording it is about.
COMMANDS = {
    "explain": ("played", ("explain",)),
    "explain-healthy": ("healthy", ("explain",)),
    "explain-healthy-all": ("healthy", ("explain", "-v")),
    "per-process": ("played", ("explain", "--per-process")),
    "query": ("played", ("query",)),
    "query-label": ("healthy", ("query", "--label", "step=2..4")),
    "query-by-label": ("healthy", ("query", "--by", "step")),
    "cost": ("healthy", ("cost", "--price", "360")),
}
CHECKS = [
    Check("kernel", "ok", "6.12.41 (x86_64, Debian GNU/Linux 13 (trixie))"),
    Check("privileges", "warning", "missing CAP_SYS_RESOURCE", "Only needed on kernels below 5.11."),
    Check("NVIDIA driver", "ok", "580.95.05"),
    *(Check("Python", "ok", f"process {pid}: 3.12.3; frames can be read, by key") for pid in range(70, 78)),
]
NO_BTF = Check(
    "BTF", "failed", "no /sys/kernel/btf/vmlinux", "Use a kernel built with BTF; see `ingero check`."
)


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


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tenant's job that keeps its GPU busy and says its steps; not all of it could be watched."""
    path, fifth = tmp_path_factory.mktemp("healthy") / "a.db", SECOND // 5
    pod = Container(5, "/a", "a" * 64, "containerd", "train-0", "team-a")
    with Writer(path, "gpu-node-01", fixed_clock(), OPERATIONS) as writer:
        for at in range(10):
            began = at * SECOND
            gpus = GpuNews(
                (GpuCard(0, "NVIDIA H100"),),
                (GpuSample(0, began + SECOND // 2, 0.95),),
                (GpuProcess(0, began + SECOND // 2, 100, "python", 8 << 30, 0.95),),
            )
            made = window(
                began,
                gpus=gpus,
                threads=[thread(gpu_wait=9 * SECOND // 10, host_cpu=SECOND // 10)],
                calls=[
                    call("cudaStreamSynchronize", fifth // 2, at_ns=began + fifth * each, why=Why.WHY_RARE)
                    for each in range(5)
                ],
                operations=[operation("cudaLaunchKernel", [5_000] * 200)],
                annotations=[Annotation(100, began, "step", str(at))],
            )
            made.processes, made.containers = [process(100, cgroup_id=5)], [pod]
            made.not_watched = [Unwatchable(100, "gil", "this Python has no symbols")]
            writer.write(made)
    return path


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


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> Terminal:
    out = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "50")
    monkeypatch.setattr(sys, "stdout", out)
    return out


def unstyled(out: Terminal) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", COMMANDS)
def test_answers_fit_the_terminal(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str, columns: int
) -> None:
    recording, words = COMMANDS[name]
    found = request.getfixturevalue(recording)
    db = found[0] if recording == "played" else found
    out = on_a_terminal(monkeypatch, columns)
    assert main([*words, "-d", str(db)]) == 0
    text = unstyled(out)
    compare(f"{name}-{columns}", text)
    tables = [line for line in text.splitlines() if "│" in line]
    assert max(map(len, tables), default=0) <= columns
    if "--wide" in text:
        assert main([*words, "--wide", "-d", str(db)]) == 0
        assert "No room for" not in unstyled(out)[len(text) :]


@pytest.mark.parametrize("columns", COLUMNS)
def test_the_end_of_a_traced_command(
    played: tuple[Path, list[LiveView]], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    db, views = played
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    last = replace(views[-1], database=DatabaseStatus("/home/a/.ingero/ingero.db", 5 << 20))
    PlainSurface(out, updates=False).end(last, 0)
    assert print_diagnosis(db, out, last)
    text = unstyled(out)
    compare(f"closing-{columns}", text)
    assert max(len(line) for line in text.splitlines() if "│" in line) <= columns
    assert "ingero explain -d /home/a/.ingero/ingero.db" in text
    assert "--wide" not in text  # an option of the questions, not of the trace


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("name", "found"), [("check", CHECKS), ("check-failed", [*CHECKS, NO_BTF])])
def test_what_this_machine_lacks(
    monkeypatch: pytest.MonkeyPatch, name: str, found: list[Check], columns: int
) -> None:
    answer = checks.CheckAnswer(all(each.status != "failed" for each in found), found)
    monkeypatch.setattr(checks, "get_checks", lambda _db: answer)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    out = on_a_terminal(monkeypatch, columns)
    assert main(["check"]) == 0
    compare(f"{name}-{columns}", unstyled(out))


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("name", "driver", "age"), [("start", "/", "3 min ago"), ("start-new", "/no", None)])
def test_what_to_do_first(
    monkeypatch: pytest.MonkeyPatch, name: str, driver: str, age: str | None, columns: int
) -> None:
    monkeypatch.setattr(start, "DRIVER", Path(driver))
    monkeypatch.setattr(start, "_age_of_last", lambda: age)
    monkeypatch.setattr(start, "__version__", "1.2.3")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    out = on_a_terminal(monkeypatch, columns)
    assert main([]) == 0
    compare(f"{name}-{columns}", unstyled(out))


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
