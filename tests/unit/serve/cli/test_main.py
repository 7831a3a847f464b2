"""The command line as people and scripts meet it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from ingero.serve.cli.main import COMMANDS, ingero, main
from ingero.serve.cli.reference import pages
from tests.command import INGERO

HEAVY = ("numpy", "rich", "sqlite3", "textual", "msgspec", "yaml")
DOCS = Path(__file__).parents[4] / "docs"


def run(*arguments: str, **more: object) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "NO_COLOR": "1", **more.pop("env", {})}  # type: ignore[dict-item]
    command = [*INGERO, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, **more)  # type: ignore[call-overload]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(ingero, list(arguments))


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return code, err


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No configuration and no database of the machine's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("INGERO_", "SUDO_", "XDG_"))]:
        monkeypatch.delenv(name)
    return tmp_path


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from ingero.serve.cli.main import main; main(['--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"
    assert "sudo ingero trace" in done.stdout


def test_the_help_of_a_command_imports_nothing_heavy_either() -> None:
    script = (
        "import sys; from ingero.serve.cli.main import COMMANDS, main\n"
        "for name in COMMANDS: main([name, '--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_line_of_help_examples_and_the_shared_options(name: str) -> None:
    command = ingero.get_command(click.Context(ingero), name)
    assert command is not None
    assert (command.help or "").split("\n")[0] == COMMANDS[name].help
    if isinstance(command, click.Group):  # they are its commands'
        for below in command.list_commands(click.Context(command)):
            has_examples_and_shared_options(name, below)
    else:
        has_examples_and_shared_options(name)


def has_examples_and_shared_options(*names: str) -> None:
    text = invoke(*names, "--help").output
    for part in ("Examples:", "--config", "--log-level", "--log-file"):
        assert part in text, part
    if "-d, --db" in text:
        assert "--duration" not in text or "-d, --duration" not in text


def test_every_command_that_reads_or_writes_a_database_has_d() -> None:
    for name in ("check", "trace", "query", "demo"):
        assert "-d, --db" in invoke(name, "--help").output


def test_python_m_ingero_is_ingero() -> None:
    done = run("version")
    assert done.returncode == 0
    assert done.stdout.startswith("ingero ")


@pytest.mark.parametrize(
    "arguments, error, hint",
    [
        (["chekc"], "no such command 'chekc'", "Did you mean check?"),
        (["version", "--jsn"], "no such option '--jsn'", "Did you mean --json?"),
        (["trace", "--pid", "x"], "--pid: not a process id: 'x'", "--pid 4821"),
        (["trace", "--pid", "0"], "--pid: not a process id: '0'", "--pid 4821"),
        (["trace", "--pid", ","], "--pid: no process id given", "leave --pid out"),
        (["trace", "--max-db", "huge"], "--max-db: cannot read the size 'huge'", "500m"),
        (["trace", "--duration", "soon"], "--duration: cannot read the duration 'soon'", "90s"),
        (["trace", "--duration", "0s"], "--duration: zero is too short", "Leave it out"),
        (["trace", "--max-overhead", "200%"], "--max-overhead: not a percentage: '200%'", "off"),
        (["trace", "--node", "a:b"], "--node: not a node name: 'a:b'", "letters"),
        (["trace", "--without", "magic"], "--without: no such source: 'magic'", "runtime"),
        (["trace", "--ringbuf-size", "5000"], "--ringbuf-size: '5000' is not a power of two", "16m"),
        (["trace", "--no-record", "--record-all"], "--record-all needs a database", "--no-record"),
        (["trace", "--pid", "3", "--", "true"], "a command and --pid", "the command alone"),
        (["query", "--json", "--format", "csv"], "--json and --format csv exclude each other", "one of them"),
        (["query", "--pid", "3", "SELECT 1"], "--pid is for statistics, not for SQL", "WHERE"),
        (["demo", "--speed", "0"], "--speed: 0.0 is not between", "to use 5"),
        (["check", "--config", "none.yaml"], "cannot read none.yaml", "--config"),
        (["version", "--log-file", "/none/x"], "cannot open log file /none/x", "--log-file"),
        (["completion", "tcsh"], "'tcsh' is not one of", "ingero completion --help"),
    ],
)
def test_a_wrong_argument_is_one_line_and_a_hint(
    capsys: pytest.CaptureFixture[str], arguments: list[str], error: str, hint: str
) -> None:
    code, err = complaint(capsys, *arguments)
    lines = err.splitlines()
    assert code == 2
    assert lines[0].startswith("error: ")
    assert error in lines[0]
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]
    assert len(lines) == 2


def test_a_missing_database_is_a_failure_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = complaint(capsys, "query", "-d", "none.db")
    assert code == 1
    assert err.startswith("error: there is no database at none.db\nhint: ")


def test_control_characters_in_an_error_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = complaint(capsys, "trace", "--pid", "\x1b[2J\x9b1")
    assert code == 2
    assert "\x1b" not in err
    assert "\x9b" not in err


def test_an_exception_that_is_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ingero.serve.answers.checks.get_version", broken)
    with pytest.raises(ZeroDivisionError):
        main(["version"])


def test_a_reader_that_stops_early_gets_no_traceback(somewhere: Path) -> None:
    command = f"{sys.executable} -m ingero demo --no-gpu --json --speed 10000 -d {somewhere}/d.db | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["node"] == "demo"
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


def test_an_interrupted_demo_ends_cleanly(somewhere: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ingero",
        "demo",
        "--no-gpu",
        "--json",
        "--speed",
        "2",
        "-d",
        f"{somewhere}/d.db",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["node"] == "demo"
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    assert run("query", "-d", f"{somewhere}/d.db", "--json").returncode == 0


def test_the_configuration_file_is_read_and_its_mistakes_are_located(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("ingero.yaml").write_text("agent:\n  nodes: a\n")
    Path("ingero.yaml").chmod(0o644)
    code, err = complaint(capsys, "version")
    assert code == 2
    assert err == "error: ingero.yaml, line 2: unknown key agent.nodes\nhint: Did you mean node?\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_us(shell: str) -> None:
    assert "_INGERO_COMPLETE" in invoke("completion", shell).output


def test_completion_knows_the_commands() -> None:
    environ = {"_INGERO_COMPLETE": "bash_complete", "COMP_WORDS": "ingero ve", "COMP_CWORD": "1"}
    assert run(env=environ).stdout.strip() == "plain,version"


def test_the_pages_in_docs_are_the_ones_the_code_writes() -> None:
    for name, text in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, (
            f"python -m ingero.serve.cli.reference docs: {name}"
        )


def test_alone_it_says_what_can_be_done_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INGERO_DB", str(tmp_path / "ingero.db"))
    assert main([]) == 0
    first = capsys.readouterr().out
    assert "demo" in first
    assert "check" in first
    assert "explain" not in first
    (tmp_path / "ingero.db").write_bytes(b"")
    assert main([]) == 0
    assert "explain" in capsys.readouterr().out
