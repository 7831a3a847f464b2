"""The Debian package: dpkg installs it in an empty root, it runs there, and nothing is left of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import require
from tests.install.rooms import Room
from tools import deb

pytestmark = pytest.mark.long
# Its own notes.
DPKG = ("var/lib/dpkg", "var/log/dpkg.log")


@pytest.fixture(scope="module")
def package(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("install", [] if shutil.which("dpkg-deb") else ["no dpkg-deb"])
    folder = tmp_path_factory.mktemp("deb")
    deb.main(wheel, folder / "build", folder / "dist")
    (made,) = (folder / "dist").iterdir()
    return made


@pytest.fixture(scope="module")
def before(room: Room) -> set[str]:
    return room.files()


@pytest.fixture(scope="module")
def installed(package: Path, room: Room, before: set[str]) -> Room:
    shutil.copy(package, room.root / "srv")
    room.run("dpkg", "--install", f"/srv/{package.name}")
    return room


def test_it_says_which_python_it_takes(package: Path) -> None:
    told = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True)
    assert re.search(r"^Depends: python3 \(>= 3\.\d+\), python3 \(<< 3\.\d+\)", told.stdout, re.MULTILINE)
    assert re.search(r"^Architecture: (amd64|arm64)$", told.stdout, re.MULTILINE)


def test_every_file_is_roots_and_for_everybody_to_read(package: Path) -> None:
    told = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True)
    entries = [line.split()[:2] for line in told.stdout.splitlines()]
    assert len(entries) > 100
    assert {owner for _, owner in entries} == {"root/root"}
    assert not [rights for rights, _ in entries if rights[7] != "r" or rights[5] == "w" or rights[8] == "w"]


def test_it_runs_where_dpkg_has_put_it(installed: Room) -> None:
    assert "Yes: ingero can trace here" in installed.as_alice("sudo", "ingero", "check")
    words = ("ingero", "demo", "--no-gpu", "--no-tui", "--speed", "20", "incident")
    assert "[HIGH] stress-ng" in installed.as_alice(*words, INGERO_DB="/tmp/of-deb.db")
    assert (installed.root / "usr/share/man/man1/ingero-trace.1").exists()
    unit = (installed.root / "usr/lib/systemd/system/ingero.service").read_text()
    assert "ExecStart=/usr/bin/ingero trace" in unit


def test_nothing_is_left_when_it_is_removed(installed: Room, before: set[str]) -> None:
    installed.run("ingero", "query", "SELECT 1", INGERO_DB="/tmp/of-deb.db")  # as root, who could write there
    installed.run("dpkg", "--remove", "ingero")
    assert not [each for each in installed.files() - before if not each.startswith(DPKG)]
    assert not before - installed.files() - {each for each in before if each.startswith(DPKG)}
