"""One agent for all tests of a module that only look at calls."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingero.scenarios import cuda
from tests.ebpf.few_functions import copy_stub
from tests.ebpf.real_runs import Place
from tests.ebpf.tracing import WORKLOADS, Tracer, tracing


@pytest.fixture(scope="session")
def few_functions() -> Iterator[Path]:
    """Where other users' jobs can read it, too."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield copy_stub(cuda.stub_dir(), Path(folder) / "lib")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on a disk: that of temporary files may be in memory."""
    folder = tmp_path_factory.mktemp("disk")
    if os.major(folder.stat().st_dev):
        yield folder
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as elsewhere:
        if not os.major(Path(elsewhere).stat().st_dev):
            pytest.skip("neither /tmp nor /var/tmp is on a disk")
        yield Path(elsewhere)


@pytest.fixture(scope="module", autouse=True)
def stub_of_the_shape(request: pytest.FixtureRequest) -> Iterator[None]:
    """Under the perf shape little is probed, save where the functions themselves are tested."""
    if os.environ.get("INGERO_ATTACH") != "perf" or getattr(request.module, "ALL_FUNCTIONS", False):
        yield
        return
    few: Path = request.getfixturevalue("few_functions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INGERO_STUB_DIR", str(few))
        yield


@pytest.fixture(scope="module")
def tracer(stub_of_the_shape: None) -> Iterator[Tracer]:
    """Traces every process, records every call."""
    with tracing(record_all=True) as running:
        yield running


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Compile a workload written in C; linked to the stub's libraries unless told otherwise."""
    folders: dict[Path, Path] = {}

    def compile_one(source: str, *more: str, name: str = "") -> str:
        stub = cuda.stub_dir()
        folder = folders.get(stub) or folders.setdefault(stub, tmp_path_factory.mktemp("compiled"))
        target = folder / (name or Path(source).stem)
        if not target.exists():
            words = [str(word).replace("STUB", str(stub)) for word in more]
            subprocess.run(
                ["gcc", "-O2", "-I", str(WORKLOADS), str(WORKLOADS / source), "-o", str(target), *words],
                check=True,
            )
        return str(target)

    return compile_one


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Where one test's `ingero` runs keep their lock, home and database."""
    return Place(tmp_path)


@pytest.fixture
def steady(compiled: Callable[..., str]) -> str:
    """A job that runs until told to stop and checks what it gets; anybody may run it."""
    program = compiled("hardship/steady.c", "-L", "STUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB")
    Path(program).parent.chmod(0o755)
    return program
