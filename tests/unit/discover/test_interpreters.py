"""Python interpreters among real processes."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import pytest

from ingero.discover.python_runtime import find_interpreters, interpreter_of
from tests.pythons import ALL

from .conftest import WAIT, Build, Start

OTHERS = ALL


def test_this_interpreter_is_recognised_with_its_exact_version() -> None:
    found = interpreter_of(os.getpid())
    assert found is not None
    assert found.version == platform.python_version().rstrip("+")
    # Distributions say Py_ENABLE_SHARED and still link their python3 statically: look, do not ask.
    shared = "/libpython" in Path("/proc/self/maps").read_text()
    assert found.linkage == ("shared" if shared else "static")


@pytest.mark.parametrize("python", [each for each in OTHERS if each.exists()], ids=str)
def test_every_interpreter_installed_here_is_recognised(start: Start, python: Path) -> None:
    child = start(str(python), "-c", WAIT)
    found = interpreter_of(child.pid)
    assert found is not None
    minor = ".".join(python.resolve().name.removeprefix("python").rstrip("m").split(".")[:2])
    assert found.version is not None
    assert found.version.split(".")[:2] == minor.split(".")


def test_other_programs_are_not_interpreters(start: Start, build: Build, tmp_path: Path) -> None:
    source = '#include <stdio.h>\nint main(void) { puts("1"); fflush(stdout); return getchar(); }'
    program = build(tmp_path / "python3.12", source, "-no-shared")  # named like one
    assert interpreter_of(start(str(program)).pid) is None


def test_a_process_that_is_gone_has_none(start: Start) -> None:
    child = start()
    child.kill()
    child.wait()
    assert interpreter_of(child.pid) is None


def test_several_processes_are_looked_at_in_one_call(start: Start) -> None:
    children = [start(), start()]
    shell = start(shutil.which("sh") or "/bin/sh", "-c", "echo; read x")
    found = find_interpreters([*(each.pid for each in children), shell.pid])
    assert [each.pid for each in found] == [each.pid for each in children]
