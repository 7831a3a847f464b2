"""`trace -- COMMAND` misses nothing of jobs that are over in milliseconds, or says what it missed.

The libraries lie in a folder that nothing but the way under test leads to.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingero.scenarios import cuda
from tests.ebpf.real_runs import Place
from tests.ebpf.tracing import WORKLOADS

RUNS = 2
MANY = 20  # `make test-long`
PYTHON = str(Path(sys.executable).resolve())  # of no virtual environment
pytestmark = pytest.mark.timeout(400)


def need_quick_probes() -> None:
    """Where probes are slow to come off few files are probed ahead; then the time missed is told."""
    if os.environ.get("INGERO_ATTACH") == "perf":
        pytest.skip("under the perf shape these places are not looked at")


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """The libraries, where no folder of the command's is above them."""
    folder = tmp_path / "apart" / "lib"
    folder.mkdir(parents=True)
    for library in cuda.stub_dir().glob("lib*.so*"):
        shutil.copy(library, folder)
    return folder


@pytest.fixture
def program(compiled: Callable[..., str]) -> str:
    return compiled("hundred_calls.c", "-L", "STUB", "-l:libcudart.so.12")


def trace(place: Place, *command: str, **env: str) -> dict[str, int]:
    """Calls by operation; the recording is a new one each time."""
    for old in place.folder.glob(f"{place.db.name}*"):
        old.unlink()
    words = ("trace", "--no-tui", "--max-overhead", "off", "--db", str(place.db), "--", *command)
    done = place.ingero(*words, env=env, cwd="/")
    assert done.returncode == 0, done.stderr
    return place.counts()


def explain(place: Place) -> Any:
    return json.loads(place.ingero("explain", "-d", str(place.db), "--json").stdout)


def missing(place: Place) -> list[str]:
    return [each["why"] for each in explain(place)["not_watched"] if "first calls" in each["what"]]


@pytest.fixture(params=[RUNS, pytest.param(MANY, marks=pytest.mark.long)])
def nothing_is_missed(request: pytest.FixtureRequest, place: Place) -> Callable[..., None]:
    """However often a command is traced."""

    def check(*command: str, jobs: int = 1, **env: str) -> None:
        for run in range(request.param):
            made = trace(place, *command, **env)
            counts = made.get("cudaMalloc"), made.get("cudaStreamSynchronize")
            assert counts == (jobs, 100 * jobs), (run, made, missing(place))
            assert missing(place) == []

    return check


def test_a_program_that_finds_its_libraries_by_the_environment(
    nothing_is_missed: Callable[..., None], program: str, apart: Path
) -> None:
    nothing_is_missed(program, LD_LIBRARY_PATH=str(apart))


def test_a_program_whose_command_sets_the_environment(
    nothing_is_missed: Callable[..., None], program: str, apart: Path
) -> None:
    nothing_is_missed("env", f"LD_LIBRARY_PATH={apart}", program)


def test_programs_of_a_script_that_sets_the_environment(
    nothing_is_missed: Callable[..., None], program: str, apart: Path, tmp_path: Path
) -> None:
    script = tmp_path / "job" / "run.sh"
    script.parent.mkdir()
    script.write_text(
        f'HERE={apart.parent}\nexport LD_LIBRARY_PATH="$HERE/lib:$LD_LIBRARY_PATH"\n'
        f"{program}\n{program} &\nwait\n"
    )
    nothing_is_missed("sh", str(script), jobs=2)


def test_a_library_opened_by_a_path_that_stands_in_the_script(
    nothing_is_missed: Callable[..., None], apart: Path, tmp_path: Path
) -> None:
    script = tmp_path / "job" / "train.py"
    script.parent.mkdir()
    script.write_text(f"import hundred_calls\nhundred_calls.call('{apart}/libcudart.so.12')\n")
    nothing_is_missed(PYTHON, str(script), PYTHONPATH=str(WORKLOADS))


def test_a_library_in_a_folder_below_the_script(
    nothing_is_missed: Callable[..., None], apart: Path, tmp_path: Path
) -> None:
    need_quick_probes()
    script = tmp_path / "job" / "train.py"
    (script.parent / "vendor").mkdir(parents=True)
    shutil.copytree(apart, script.parent / "vendor" / "cuda")
    script.write_text(
        "import hundred_calls, pathlib\n"
        "here = pathlib.Path(__file__).parent\n"
        "hundred_calls.call(str(here / 'vendor' / 'cuda' / 'libcudart.so.12'))\n"
    )
    nothing_is_missed(PYTHON, str(script), PYTHONPATH=str(WORKLOADS))


@pytest.mark.parametrize("folder", ["nvidia/cuda_runtime/lib", "some_package.libs", "some/where/deep"])
def test_a_library_of_a_wheel(
    nothing_is_missed: Callable[..., None], apart: Path, tmp_path: Path, folder: str
) -> None:
    if "nvidia" not in folder:
        need_quick_probes()
    site = tmp_path / "venv" / f"lib/python3.{sys.version_info.minor}/site-packages"
    site.mkdir(parents=True)
    (tmp_path / "venv" / "bin").mkdir()
    (tmp_path / "venv" / "bin" / "python").symlink_to(PYTHON)
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {Path(PYTHON).parent}\n")
    shutil.copytree(apart, site / folder)
    shutil.copy(WORKLOADS / "hundred_calls.py", site)
    if "nvidia" not in folder:  # any other place is known because pip wrote it down
        (site / "some_package-1.0.dist-info").mkdir()
        listed = f"{folder}/libcudart.so.12,sha256=x,1\n{folder}/libcuda.so.1,sha256=x,1\n"
        (site / "some_package-1.0.dist-info" / "RECORD").write_text(listed)
    calls = (
        "import hundred_calls, sysconfig\n"
        f"hundred_calls.call(sysconfig.get_path('purelib') + '/{folder}/libcudart.so.12')"
    )
    nothing_is_missed(str(tmp_path / "venv" / "bin" / "python"), "-c", calls)


@pytest.mark.parametrize("how", ["here", "fork", "spawn"])
def test_a_library_opened_by_path_in_the_process_or_its_child(
    nothing_is_missed: Callable[..., None], apart: Path, how: str
) -> None:
    nothing_is_missed(PYTHON, str(WORKLOADS / "hundred_calls.py"), f"{apart}/libcudart.so.12", how)


def test_a_program_with_the_runtime_inside_that_a_shell_starts(
    nothing_is_missed: Callable[..., None], compiled: Callable[..., str], apart: Path
) -> None:
    program = compiled(
        "hundred_calls.c",
        "STUB/libcudart_static.a",
        "-L",
        "STUB",
        "-l:libcuda.so.1",
        "-lpthread",
        name="inside",
    )
    nothing_is_missed("sh", "-c", f"LD_LIBRARY_PATH={apart} {program}; exit 0")


def test_time_a_library_that_nobody_could_know_of_was_not_watched_is_told(place: Place, apart: Path) -> None:
    for _ in range(RUNS):
        script = str(WORKLOADS / "hundred_calls.py")
        made = trace(place, PYTHON, script, f"{apart}/libcudart.so.12", "copy")
        told = missing(place)
        if not told:
            assert (made["cudaMalloc"], made["cudaStreamSynchronize"]) == (1, 100)
            continue
        assert "libcudart.so.12 was mapped" in " ".join(told)
        assert "s not watched" in told[0]
        operations = [line for each in explain(place)["processes"] for line in each["operations"]]
        assert not any(line["exact"] for line in operations if line["op"].startswith("cuda"))
        said = place.ingero("explain", "-d", str(place.db)).stdout
        assert "first calls of process" in said
