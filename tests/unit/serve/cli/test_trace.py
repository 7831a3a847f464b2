"""From flags, variables and file to the options a trace runs with."""

import logging
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ingero
from ingero.model.live import LiveView, QuietSurface, Surface
from ingero.model.options import TraceOptions
from ingero.serve.cli import log
from ingero.serve.cli.main import main
from ingero.serve.cli.surfaces import JsonSurface, PlainSurface
from ingero.serve.cli.trace import choose_surface, run_on, stopping_on_signals


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[TraceOptions, Any]]:
    """What the agent was called with; nothing is traced."""
    calls: list[tuple[TraceOptions, Any]] = []

    def run(options: TraceOptions, surface: Surface) -> int:
        calls.append((options, surface))
        return 7

    agent = SimpleNamespace(run=run)
    monkeypatch.setitem(sys.modules, "ingero.agent", agent)
    monkeypatch.setattr(ingero, "agent", agent, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("INGERO_")]:
        monkeypatch.delenv(name)
    return calls


def test_without_flags_everything_is_traced_with_the_defaults(
    asked: list[tuple[TraceOptions, Any]],
) -> None:
    assert main(["trace", "--no-tui"]) == 7
    options, surface = asked[0][0], asked[0][1].surface
    assert options == TraceOptions()
    assert options.max_overhead_share == 0.02
    assert options.max_db_bytes == 10 << 30
    assert isinstance(surface, PlainSurface)


def test_every_flag_reaches_the_agent(asked: list[tuple[TraceOptions, Any]]) -> None:
    flags = (
        "--pid 12,13 --pid 12 --user alice --container 3f2a --cgroup /sys/fs/cgroup/x --duration 1m30s"
        " --record-all -d here.db --max-db 500m --no-stack --max-overhead off --node n1"
        " --without tcp,block --without xid --ringbuf-size 16m"
    )
    assert main(["trace", *flags.split()]) == 7
    assert asked[0][0] == TraceOptions(
        pids=(12, 13),
        user="alice",
        container="3f2a",
        cgroup=Path("/sys/fs/cgroup/x"),
        duration_ns=90_000_000_000,
        record_all=True,
        db=Path("here.db"),
        max_db_bytes=500 << 20,
        stack=False,
        max_overhead_share=None,
        node="n1",
        without=frozenset({"tcp", "block", "xid"}),
        ring_bytes=16 << 20,
    )


def test_a_flag_beats_a_variable_beats_the_file(
    asked: list[tuple[TraceOptions, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ingero.yaml").write_text(
        "agent:\n  node: file\n  max_db: 1g\n  record: false\ntrace:\n  pid: [5]\n"
    )
    Path("ingero.yaml").chmod(0o644)
    monkeypatch.setenv("INGERO_NODE", "variable")
    monkeypatch.setenv("INGERO_MAX_DB", "2g")
    assert main(["trace", "--node", "flag", "--record"]) == 7
    options = asked[0][0]
    assert (options.node, options.max_db_bytes, options.record, options.pids) == ("flag", 2 << 30, True, (5,))


def test_what_follows_the_command_is_the_commands(asked: list[tuple[TraceOptions, Any]]) -> None:
    Path("ingero.yaml").write_text("trace:\n  pid: [5]\n")
    Path("ingero.yaml").chmod(0o644)
    assert main(["trace", "--json", "--", "python", "train.py", "--json", "--pid", "1"]) == 7
    options, surface = asked[0][0], asked[0][1].surface
    assert options.command == ("python", "train.py", "--json", "--pid", "1")
    assert options.pids == ()
    assert options.command_stdout_to_stderr
    assert isinstance(surface, JsonSurface)
    assert main(["trace", "python", "--help"]) == 7
    assert asked[1][0].command == ("python", "--help")


def test_a_bare_number_is_taken_for_a_forgotten_pid(
    asked: list[tuple[TraceOptions, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "4821"]) == 2
    assert "--pid 4821" in capsys.readouterr().err
    assert asked == []


def test_a_commands_output_is_left_alone_and_the_summary_goes_to_stderr() -> None:
    surface = choose_surface(as_json=False, no_tui=False, command=True)
    assert isinstance(surface, PlainSurface)
    assert surface.console.file.fileno() == sys.stderr.fileno()


def test_a_signal_asks_to_stop_and_a_second_one_has_its_usual_effect(request: pytest.FixtureRequest) -> None:
    stop, usual = threading.Event(), signal.default_int_handler  # tests in the background have it ignored
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, usual)))
    with stopping_on_signals(stop):
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is usual


def test_an_ignored_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = threading.Event()
        with stopping_on_signals(stop):
            signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


class Screen:
    """Stands for a surface that owns the terminal."""

    wants_records = False
    takes_the_screen = True

    def __init__(self) -> None:
        self.stop_requested = threading.Event()
        self.seen = ""

    def run(self, work: object) -> int:
        logging.getLogger("ingero.x").warning("while it is up \x1b[2J")
        return 0

    def begin(self, view: LiveView) -> None: ...
    def update(self, view: LiveView) -> None: ...
    def behind(self) -> bool: ...
    def records(self, lines: object) -> None: ...
    def end(self, view: LiveView, exit_code: int) -> None: ...


def test_messages_wait_while_the_live_view_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    log.start("warning", None)
    with log.held():
        logging.getLogger("ingero.x").warning("later")
        assert capsys.readouterr().err == ""
    assert "later" in capsys.readouterr().err
    assert run_on(Screen(), lambda: 0) == 0
    err = capsys.readouterr().err
    assert "while it is up" in err
    assert "\x1b" not in err
    assert run_on(QuietSurface(), lambda: 3) == 3
    log.stop()


def test_messages_go_to_a_private_file_and_not_through_a_link(tmp_path: Path) -> None:
    file = tmp_path / "log"
    environ = {**os.environ, "HOME": str(tmp_path), "INGERO_LOG_FILE": str(file)}
    done = subprocess.run(
        [sys.executable, "-m", "ingero", "version"], env=environ, capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    done = subprocess.run(
        [sys.executable, "-m", "ingero", "version"], env=environ, capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert not (tmp_path / "elsewhere").exists()
