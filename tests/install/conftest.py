"""The wheel as `make dist` makes it, and an empty Debian root to install it in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing_for_ebpf, require
from tests.install.rooms import Room

REPOSITORY = Path(__file__).parents[2]
DEBIAN = REPOSITORY / "build/debian-root.tar"
WHEELHOUSE = REPOSITORY / "build/wheelhouse"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built and repaired; what was compiled for `make build` is not compiled again."""
    folder = tmp_path_factory.mktemp("wheel")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [REPOSITORY / "tools/wheel.sh", folder], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def room(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A Debian with Python, pipx and sudo, a user in it, and no network."""
    missing = [
        f"no {path.relative_to(REPOSITORY)}: make room" for path in (DEBIAN, WHEELHOUSE) if not path.exists()
    ]
    require("install", [*missing_for_ebpf(), *missing])
    root = tmp_path_factory.mktemp("debian")
    root.chmod(0o755)
    subprocess.run(["tar", "-x", "-f", DEBIAN, "-C", root], check=True)
    shutil.copytree(WHEELHOUSE, root / "srv/wheelhouse")
    (root / "srv/dist").mkdir()
    shutil.copy(wheel, root / "srv/dist")
    shutil.copy(REPOSITORY / "tests/workloads/busy.py", root / "srv")
    made = Room(root)
    made.run("useradd", "--create-home", "alice")
    made.run("sh", "-c", "echo 'alice ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/alice")
    yield made
    shutil.rmtree(root)
