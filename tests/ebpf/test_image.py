"""The image of deploy/image: built from Debian packages, small, and nothing in it that it does not need.

No registry is asked: the base is made by mmdebstrap. Images are kept in build/podman
(INGERO_TEST_PODMAN names another place), so that a second run builds only what changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingero import __version__

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
KEPT = Path(os.environ.get("INGERO_TEST_PODMAN", ROOT / "build/podman"))
BASE, IMAGE = "localhost/debian:bookworm", f"localhost/ingero:{__version__}"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")  # with those of a proxy on the way to the packages
# Limits as this machine has them: without CAP_SYS_RESOURCE nobody can raise them.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
UNWANTED = {
    "sh", "bash", "dash", "busybox", "gcc", "cc", "clang", "ld", "apt-get", "dpkg", "pip", "node", "npm",
}  # fmt: skip


def podman(*words: str) -> str:
    """runc, because crun refuses hosts that mix both versions of cgroups."""
    options = ["--root", str(KEPT / "store"), "--runroot", str(KEPT / "run"), "--storage-driver", "overlay"]
    done = subprocess.run(
        ["podman", *options, "--cgroup-manager", "cgroupfs", "--runtime", "runc", *words],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"podman {words[0]}: {done.stderr[-4000:]}"
    return done.stdout.strip()


def base() -> None:
    if BASE in podman("images", "--format", "{{.Repository}}:{{.Tag}}").split():
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    made = KEPT / "base.tar"
    subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", "bookworm", str(made)], check=True)
    podman("import", "--quiet", str(made), BASE)
    made.unlink()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    missing = [each for each in ("podman", "runc", "mmdebstrap") if shutil.which(each) is None]
    if missing:
        pytest.skip(f"the image cannot be built here without {', '.join(missing)}")
    base()
    trusted = f"{AUTHORITIES}:/usr/local/share/ca-certificates/machine.crt:ro"
    podman(
        "build", "--quiet", "--layers", "--isolation", "chroot", "--network", "host", "-v", trusted,
        "--build-arg", f"BASE={BASE}", "-f", str(ROOT / "deploy/image/Dockerfile"), "-t", IMAGE, str(ROOT),
    )  # fmt: skip
    yield IMAGE
    podman("image", "prune", "--force")


def test_it_has_neither_shell_nor_compiler_nor_package_manager(image: str) -> None:
    place = Path(podman("image", "mount", image))
    try:
        found = [path for path in place.rglob("*") if path.name in UNWANTED and not path.is_dir()]
        names = {name for path in place.glob("opt/ingero/bin/*") for name in [path.name]}
    finally:
        podman("image", "unmount", image)
    assert found == []
    assert "ingero" in names


def test_it_is_small_and_says_its_version(image: str) -> None:
    assert int(podman("image", "inspect", "--format", "{{.Size}}", image)) < 300_000_000
    told = podman("run", "--rm", *LIMITS, "--network", "none", "--read-only", image, "version")
    assert f"ingero {__version__}" in told
