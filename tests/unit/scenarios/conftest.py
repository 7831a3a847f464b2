"""The stub's libraries, and processes of their own to use them in.

The stub reads its environment when it is loaded and a process has one device, so
every test works in fresh processes.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ingero.errors import TargetError
from ingero.scenarios import cuda

SOURCES = Path(cuda.__file__).parent / "stub"
PROJECT = """project('stub', 'c', default_options: ['buildtype=release', 'werror=true'])
py = import('python').find_installation()
subdir('stub')
"""


@pytest.fixture(scope="session")
def stub_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built libraries: the installed ones, or built now from a bare source tree."""
    try:
        return cuda.stub_dir()
    except TargetError:
        meson = shutil.which("meson")
        if meson is None:
            pytest.skip("the stub device is not built and there is no meson to build it")
        return build(meson, tmp_path_factory.mktemp("stub"))


def build(meson: str, folder: Path) -> Path:
    (folder / "meson.build").write_text(PROJECT)
    (folder / "stub").symlink_to(SOURCES)
    subprocess.run([meson, "setup", "build"], cwd=folder, check=True, capture_output=True)
    subprocess.run([meson, "compile", "-C", "build"], cwd=folder, check=True, capture_output=True)
    return folder / "build" / "stub"


class Processes:
    """Starts functions in fresh processes that see the given environment."""

    def __init__(self, stub_dir: Path) -> None:
        self.executors: list[ProcessPoolExecutor] = []
        self.stub_dir = stub_dir

    def start(self, function: Callable[..., Any], *arguments: Any, **environment: Any) -> Future[Any]:
        spawn = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(1, spawn, _enter, (str(self.stub_dir), environment))
        self.executors.append(executor)
        return executor.submit(function, *arguments)

    def run(self, function: Callable[..., Any], *arguments: Any, **environment: Any) -> Any:
        return self.start(function, *arguments, **environment).result(timeout=60)


def _enter(stub_dir: str, environment: dict[str, Any]) -> None:
    os.environ["INGERO_STUB_DIR"] = stub_dir
    os.environ.update({f"INGERO_STUB_{name}": str(value) for name, value in environment.items()})


@pytest.fixture
def processes(stub_dir: Path) -> Any:
    started = Processes(stub_dir)
    yield started
    for executor in started.executors:
        executor.shutdown(wait=True, cancel_futures=True)


@pytest.fixture
def device(tmp_path: Path) -> str:
    """A device that several processes can name."""
    return str(tmp_path / "device")
