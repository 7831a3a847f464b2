"""Only ingero.isolated starts a Python: what the current folder and environment hold never runs in it.

ingero runs as root. Each of its processes is started here in a folder full of modules
that say so when they are imported, with a PYTHONPATH that leads to them.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingero import isolated
from ingero.scenarios.live import Stage
from ingero.scenarios.scenario import Live, Work
from ingero.serve.answers.query import Range
from ingero.serve.dashboard.source import Diagnosing
from ingero.store import sql_process
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, call, fixed_clock, window
from tests.contracts.tree import dotted, name, nodes, text_of, under

HOME = "src/ingero/isolated.py"
MENTIONS = {"src/ingero/discover/host_checks.py"}  # names the interpreter in a command for the user
NAMES = {"sys.executable", "multiprocessing.Process", "multiprocessing.Pool", "multiprocessing.Manager"}
ENDINGS = ("ProcessPoolExecutor", "set_start_method")


def starts_of_python(text: str) -> Iterator[int]:
    """The lines on which source would start an interpreter; a fork is not a new one."""
    for node in nodes(text):
        if isinstance(node, ast.Attribute | ast.Name):
            named = dotted(node)
            if named in NAMES or named.endswith(ENDINGS):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module in ("sys", "multiprocessing"):
            if {f"{node.module}.{each.name}" for each in node.names} & NAMES:
                yield node.lineno
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("get_context") and not fork(node):
            yield node.lineno


def fork(node: ast.Call) -> bool:
    return ast.unparse(node).endswith("get_context('fork')")


def test_no_other_module_starts_an_interpreter() -> None:
    found = {
        f"{name(path)}:{line}"
        for path in under("src", ".py")
        if name(path) not in {HOME, *MENTIONS}
        for line in starts_of_python(text_of(path))
    }
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run([sys.executable, '-m', 'x'])",
        "from sys import executable",
        "multiprocessing.get_context('spawn').Process(target=f)",
        "multiprocessing.Process(target=f)",
        "ProcessPoolExecutor()",
    ],
)
def test_a_start_of_an_interpreter_is_noticed(text: str) -> None:
    assert list(starts_of_python(text))


@pytest.fixture
def hostile_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Become a program in a folder that has a module of every name; says which of them ran."""
    folder, ran = tmp_path / "hostile", tmp_path / "ran"
    (folder / "ingero").mkdir(parents=True)
    ran.mkdir()
    early = {"encodings", "io", "abc", "codecs"}  # without these an interpreter dies before it says anything
    for module in [
        *(sys.stdlib_module_names - early),
        "ingero/__init__",
        "numpy",
        "msgspec",
        "sitecustomize",
    ]:
        mark = ran / module.replace("/", ".")
        (folder / f"{module}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}::.")
    monkeypatch.setenv("PYTHONSTARTUP", str(folder / "json.py"))
    return lambda: sorted(path.name for path in ran.iterdir())


def test_such_a_folder_does_run_in_an_interpreter_that_is_not_isolated(
    hostile_folder: Callable[[], list[str]],
) -> None:
    subprocess.run([sys.executable, "-c", "import json"], check=False, capture_output=True)
    assert hostile_folder()


def test_a_module_of_ours_is_ours_in_a_hostile_folder(hostile_folder: Callable[[], list[str]]) -> None:
    process = isolated.start("ingero", "--version", stdout=subprocess.PIPE, text=True)
    assert process.communicate()[0].startswith("ingero")
    assert process.returncode == 0
    assert hostile_folder() == []


def test_the_job_of_the_demo_runs_nothing_of_the_current_folder(
    hostile_folder: Callable[[], list[str]],
) -> None:
    with Stage(Live(Work(launches=1, kernel_us=1)), gpu=False) as stage:
        assert stage.pids
    assert hostile_folder() == []


def test_sql_and_the_diagnosis_run_nothing_of_the_current_folder(
    hostile_folder: Callable[[], list[str]], tmp_path: Path
) -> None:
    with Writer(tmp_path / "x.db", "n", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(0, calls=call())) == ""
    with Reader(tmp_path / "x.db") as reader:
        assert sql_process.run(reader, "SELECT COUNT(*) FROM events").rows == [(1,)]
        diagnosing = Diagnosing()
        assert diagnosing.report(reader.path, Range(), None, None).node
    assert hostile_folder() == []


def test_what_was_installed_with_us_is_taken_before_the_interpreters_own(tmp_path: Path) -> None:
    """As below a prefix on a Debian that has an older click."""
    ours = tmp_path / "lib/ingero"
    (ours / "ingero").mkdir(parents=True)
    shutil.copy(isolated.__file__, ours / "ingero")
    for each in ("ingero/__init__.py", "click.py"):
        (ours / each).touch()
    (ours / "ingero/shown.py").write_text("import click; print(click.__file__)")
    words = (sys.executable, *isolated.FLAGS, str(ours / "ingero/isolated.py"), "ingero.shown")
    done = subprocess.run(words, cwd="/", capture_output=True, text=True)
    assert done.stdout.strip() == str(ours / "click.py"), done.stderr


def test_the_environment_that_is_passed_on_has_no_variable_of_pythons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "x")
    monkeypatch.setenv("PYTHONHOME", "x")
    assert not [each for each in isolated.environment() if each.startswith("PYTHON")]
