"""Where the interpreter's lock lies, in real interpreters and in programs that look like one."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ingero.discover.python_runtime import Gil, GilFinder

from .conftest import WAIT, Build, Start
from .test_interpreters import OTHERS

WHERE = "import ctypes; print(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, '_PyRuntime')));" + WAIT
PROGRAM = """
#include <stdio.h>
%s
const unsigned long Py_Version = %s;
int main(void) { printf("%%lu\\n", (unsigned long)_PyRuntime); fflush(stdout); return getchar(); }
"""


def minor_of(python: Path) -> int:
    return int(python.resolve().name.removeprefix("python3.").rstrip("m"))


def test_it_lies_in_this_interpreters_runtime() -> None:
    found = GilFinder().gil_of(os.getpid())
    assert found is not None
    assert found.start == ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    assert 256 < found.end - found.start < 1 << 20
    assert not found.why


@pytest.mark.parametrize("python", [each for each in OTHERS if each.exists()], ids=str)
def test_every_supported_interpreter_here_says_where_it_is(start: Start, python: Path) -> None:
    child = start(str(python), "-c", WAIT)
    found = GilFinder().gil_of(child.pid)
    assert found is not None
    assert bool(found.why) == (minor_of(python) < 9), found.why


@pytest.mark.parametrize(
    "python", [each for each in OTHERS if each.exists() and minor_of(each) >= 9], ids=str
)
def test_the_address_is_the_one_the_interpreter_itself_sees(python: Path) -> None:
    child = subprocess.Popen([python, "-c", WHERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        said = int(child.stdout.readline())
        found = GilFinder().gil_of(child.pid)
        child.kill()
    assert found is not None
    assert found.start == said


VARIABLES = {
    "zeroes": "char _PyRuntime[65536];",
    "bytes": "char _PyRuntime[65536] = {1};",
    "odd": "char before[12345] = {1}; char _PyRuntime[4096] = {1};",
}


@pytest.mark.parametrize("variable", VARIABLES.values(), ids=VARIABLES)
@pytest.mark.parametrize("flags", [("-pie", "-fPIE"), ("-no-pie",)], ids=["moved", "fixed"])
def test_a_static_interpreter_anywhere_in_memory(
    build: Build, tmp_path: Path, variable: str, flags: tuple[str, ...]
) -> None:
    source = PROGRAM % (variable, "0x030c01f0")
    program = build(tmp_path / "anything", source, "-no-shared", *flags)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = int(child.stdout.readline())
        found = GilFinder().gil_of(child.pid)
        child.kill()
    assert found == Gil(said, said + (4096 if "before" in variable else 65536))


@pytest.mark.parametrize(
    "version, variable, why",
    [
        ("0x030800f0", "char _PyRuntime[64];", "Python 3.8: only 3.9 to 3.14 are known"),
        ("0x031000f0", "char _PyRuntime[64];", "Python 3.16"),
        ("0", "char _PyRuntime[64];", "of unknown version"),
        ("0x030c01f0", "char _PyRuntime[17 << 20];", "does not say where"),
    ],
)
def test_what_is_not_known_is_said_and_not_guessed(
    build: Build, start: Start, tmp_path: Path, version: str, variable: str, why: str
) -> None:
    program = build(tmp_path / "anything", PROGRAM % (variable, version), "-no-shared")
    found = GilFinder().gil_of(start(str(program)).pid)
    assert found is not None
    assert why in found.why
    assert (found.start, found.end) == (0, 0)


def test_a_free_threaded_interpreter_has_none(build: Build, start: Start, tmp_path: Path) -> None:
    source = PROGRAM % ("char _PyRuntime[64];", "0x030d00f0")
    found = GilFinder().gil_of(start(str(build(tmp_path / "python3.13t", source, "-no-shared"))).pid)
    assert found is not None
    assert "free-threaded" in found.why


def test_other_programs_have_none_and_of_those_that_are_gone_nothing_is_known(start: Start) -> None:
    finder = GilFinder()
    assert finder.gil_of(start(shutil.which("sh") or "/bin/sh", "-c", "echo; read x").pid) is None
    gone = start()
    gone.kill()
    gone.wait()
    with pytest.raises(ProcessLookupError):
        finder.gil_of(gone.pid)
