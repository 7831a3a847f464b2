"""The unit, started by a real systemd: a virtual machine with Debian, the wheel installed as the docs say.

A container will not do: systemd wants to be process 1, and tracing wants the machine's own process numbers.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.install.conftest import REPOSITORY, WHEELHOUSE
from tests.install.rooms import Room
from tools.kernels import image, machine
from tools.kernels import run as kernels

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]
DEBIAN = REPOSITORY / "build/debian-systemd.tar"
KERNEL = "Debian 13"  # the unit's capabilities are enough from 6.6 on
FOR_ALL = {"PIPX_HOME": "/opt/pipx", "PIPX_BIN_DIR": "/usr/local/bin"}
PYTHON = "/opt/pipx/venvs/ingero/bin/python"
JUDGE = f"""\
[Unit]
After=ingero.service
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart={PYTHON} /srv/under_systemd.py {PYTHON} STUB
StandardOutput=file:/dev/ttyS0
StandardError=file:/dev/ttyS0
[Install]
WantedBy=multi-user.target
"""
NEEDLESS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/lib/apt",
    "var/cache",
    "srv/wheelhouse",
)
MEMORY_MB = 3072


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A root with ingero for everybody and its unit, as docs/install.md and docs/deploy.md say."""
    missing = [f"no {path.name}: make room" for path in (DEBIAN, WHEELHOUSE) if not path.exists()]
    missing += [] if shutil.which("qemu-system-x86_64") else ["no qemu-system-x86_64"]
    require("install", missing)
    root = tmp_path_factory.mktemp("systemd")
    root.chmod(0o755)
    subprocess.run(["tar", "-x", "-f", DEBIAN, "-C", root], check=True)
    shutil.copytree(WHEELHOUSE, root / "srv/wheelhouse")
    for each in (wheel, REPOSITORY / "tests/workloads/busy.py", Path(__file__).with_name("under_systemd.py")):
        shutil.copy(each, root / "srv")
    room = Room(root)
    room.run("pipx", "install", f"/srv/{wheel.name}", **FOR_ALL)
    room.run(PYTHON, "-m", "compileall", "-q", "/opt/pipx/venvs/ingero/lib")  # here, ten times as quick
    stub = room.run(PYTHON, "-c", "from ingero.scenarios import cuda; print(cuda.stub_dir())").strip()
    units = root / "etc/systemd/system"
    shutil.copy(REPOSITORY / "deploy/systemd/ingero.service", units)
    (units / "judge.service").write_text(JUDGE.replace("STUB", stub))
    room.run("systemctl", "enable", "ingero.service", "judge.service")
    for each in NEEDLESS:
        shutil.rmtree(root / each)
    (root / "etc/machine-id").write_text("0" * 31 + "1\n")
    (root / "init").symlink_to("usr/lib/systemd/systemd")
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def told(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> machine.Outcome:
    """What the machine said of its unit."""
    folder = tmp_path_factory.mktemp("machine")
    (row,) = [each for each in tomllib.loads(kernels.MATRIX.read_text())["kernel"] if each["name"] == KERNEL]
    packed = folder / "root.cpio"
    with packed.open("wb") as file:
        file.writelines(image.archived(installed))
    words = f"{row.get('words', '')} systemd.mask=systemd-timesyncd.service systemd.show_status=0"
    log = REPOSITORY / "build/systemd.log"
    outcome = machine.boot(
        kernels.kernel_of(row, renew=False),
        packed,
        row["architecture"],
        words,
        "host",
        log,
        memory_mb=MEMORY_MB,
    )
    packed.unlink()
    assert outcome.ended, log.read_text(errors="replace")[-4000:]
    assert not outcome.failed, outcome.failed
    return outcome


def facts(told: machine.Outcome, name: str) -> dict[str, Any]:
    return dict(told.tests[name]["facts"])


def test_it_starts_with_the_machine_and_traces_with_the_rights_the_docs_list(told: machine.Outcome) -> None:
    assert "it starts with the machine" in told.tests
    traced = facts(told, "it traces a job of another user")
    assert traced["launches"] > 0
    page = (REPOSITORY / "docs/deploy.md").read_text()
    assert traced["rights"].bit_count() == len(re.findall(r"^\| `(CAP_\w+)` \|", page, re.MULTILINE))


def test_it_survives_a_restart_and_a_kill(told: machine.Outcome) -> None:
    assert facts(told, "it survives a restart")["Result"] == "success"
    assert facts(told, "it comes again when it was killed")["NRestarts"] == "1"


def test_it_stops_cleanly_and_the_job_goes_on(told: machine.Outcome) -> None:
    stopped = facts(told, "it stops cleanly")
    assert stopped["recordings"] == [True, False, True]  # the second was killed
    assert (stopped["ActiveState"], stopped["Result"], stopped["ExecMainStatus"]) == (
        "inactive",
        "success",
        "0",
    )
    assert stopped["job"] == "active"


def test_the_exposure_in_the_docs_is_that_of_the_running_unit(told: machine.Outcome) -> None:
    score = re.search(r"exposure level for ingero.service: ([0-9.]+)", facts(told, "security")["told"])
    assert score
    assert f"exposure {score[1]}" in (REPOSITORY / "docs/deploy.md").read_text()
