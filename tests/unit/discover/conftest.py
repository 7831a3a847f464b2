"""Real child processes and small compiled libraries to discover."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[bytes]"]
Build = Callable[..., Path]

WAIT = "import sys; print(1, flush=True); sys.stdin.read()"
LOAD = "import ctypes, sys; [ctypes.CDLL(each) for each in sys.argv[1:]];" + WAIT


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that runs until the test ends; returns once it is up."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        arguments = command or (sys.executable, "-c", WAIT)
        child = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=None if env is None else os.environ | env,
        )
        running.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield begin
    for child in running:
        child.kill()
        child.communicate()


@pytest.fixture
def build(tmp_path: Path) -> Build:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")

    def make(target: Path, source: str, *flags: str) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        code = tmp_path / "source.c"
        code.write_text(source)
        shared = () if "-no-shared" in flags else ("-shared", "-fPIC")
        kept = [flag for flag in flags if flag != "-no-shared"]
        subprocess.run([compiler, *shared, "-o", target, code, *kept], check=True, capture_output=True)
        return target

    return make
