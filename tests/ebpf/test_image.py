"""The image of deploy/image: built from Debian packages, small, without what it does not need; it traces.

No registry is asked: the base is made by mmdebstrap. Images are kept in build/podman
(INGERO_TEST_PODMAN names another place), so that a second run builds only what changed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingero import __version__
from tests.containers import LIMITS, Podman, compiled_job, need
from tests.ebpf.real_runs import until
from tests.ebpf.test_least_rights import may

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
KEPT = Path(os.environ.get("INGERO_TEST_PODMAN", ROOT / "build/podman"))
BASE, IMAGE = "localhost/debian:bookworm", f"localhost/ingero:{__version__}"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")  # with those of a proxy on the way to the packages
UNWANTED = {
    "sh", "bash", "dash", "busybox", "gcc", "cc", "clang", "ld", "apt-get", "dpkg", "pip", "node", "npm",
}  # fmt: skip


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """With the image in it."""
    need("mmdebstrap")
    KEPT.mkdir(parents=True, exist_ok=True)
    made = Podman(KEPT)
    if BASE not in made.images():
        tar = KEPT / "base.tar"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", "bookworm", str(tar)], check=True)
        made.do("import", "--quiet", str(tar), BASE)
        tar.unlink()
    trusted = f"{AUTHORITIES}:/usr/local/share/ca-certificates/machine.crt:ro"
    made.do(
        "build", "--quiet", "--layers", "--isolation", "chroot", "--network", "host", "-v", trusted,
        "--build-arg", f"BASE={BASE}", "-f", str(ROOT / "deploy/image/Dockerfile"), "-t", IMAGE, str(ROOT),
    )  # fmt: skip
    yield made
    for left in made.do("ps", "--all", "--external", "--quiet").split():  # of builds that were interrupted
        made.remove(left)
    made.do("image", "prune", "--force")


def test_it_has_neither_shell_nor_compiler_nor_package_manager(podman: Podman) -> None:
    place = Path(podman.do("image", "mount", IMAGE))
    try:
        found = [path for path in place.rglob("*") if path.name in UNWANTED and not path.is_dir()]
        names = {name for path in place.glob("opt/ingero/bin/*") for name in [path.name]}
    finally:
        podman.do("image", "unmount", IMAGE)
    assert found == []
    assert "ingero" in names


def test_it_is_small_and_says_its_version(podman: Podman) -> None:
    assert int(podman.do("image", "inspect", "--format", "{{.Size}}", IMAGE)) < 300_000_000
    told = podman.do("run", "--rm", *LIMITS, "--network", "none", "--read-only", IMAGE, "version")
    assert f"ingero {__version__}" in told


def documented(state: Path, podman: Podman) -> list[str]:
    """The options of `docker run` in docs/deploy.md, with Podman's folders and one of ours for state."""
    page = (ROOT / "docs/deploy.md").read_text()
    found = re.search(r"^docker run -d (.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found
    words = shlex.split(found[1].replace("\\\n", " "))
    assert words.pop() == f"ingero:{__version__}"
    ours = {
        "/var/lib/ingero:/var/lib/ingero": f"{state}:/var/lib/ingero",
        "/var/lib/docker/containers:/var/lib/docker/containers:ro": f"{podman.kept}/store/overlay-containers"
        ":/var/lib/containers/storage/overlay-containers:ro",
    }
    assert ours.keys() <= set(words)
    words = [ours.get(each, each) for each in words]
    if not may(24):  # nobody has it on this machine, so nobody can be given it
        at = words.index("SYS_RESOURCE")
        del words[at - 1 : at + 1]
    return words


def test_it_traces_a_job_in_another_container_and_names_it(podman: Podman, tmp_path: Path) -> None:
    """With the capabilities and mounts that the docs list and no others."""
    podman.make_job_image(compiled_job(tmp_path))
    state = tmp_path / "state"
    state.mkdir()
    options = documented(state, podman)
    assert "--privileged" not in options
    assert options[options.index("--cap-drop") + 1] == "ALL"
    podman.remove("ingero")
    # Podman 4's profile refuses bpf() to everybody without CAP_SYS_ADMIN, as the page says.
    podman.do(
        "run", "-d", *LIMITS, "--network", "none", "--security-opt", "seccomp=unconfined", *options, IMAGE
    )

    def asked(*words: str) -> Any:
        return json.loads(podman.do("exec", "ingero", "/opt/ingero/bin/ingero", *words, "--json"))

    try:
        until(lambda: "Probes:" in podman.do("logs", "ingero"), "it began", 60)
        with podman.running("the-trainer", "200", "5") as trainer:
            trainer.job.start()
            sql = f"SELECT pid, container, container_id FROM tenants WHERE pid = {trainer.pid}"
            rows = until(
                lambda: [each for each in asked("query", sql)["rows"] if each["container"]], "it is named", 60
            )
            assert rows == [{"pid": trainer.pid, "container": "the-trainer", "container_id": trainer.number}]
            counted = until(
                lambda: asked("query", "--container", "the-trainer")["operations"], "calls are counted", 60
            )
            assert {"cuLaunchKernel", "ncclAllReduce"} <= {each["op"] for each in counted}
            podman.do("stop", "--time", "60", "ingero")
            (told,) = json.loads(podman.do("inspect", "ingero"))
            assert told["State"]["ExitCode"] == 0
            assert trainer.job.process.poll() is None
    finally:
        podman.remove("ingero")
