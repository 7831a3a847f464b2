"""What `make dist` makes: a source archive that builds the same wheel, and a wheel for arm64."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from ingero import __version__
from tests.conftest import require
from tests.contracts.tree import under
from tests.install.conftest import REPOSITORY

pytestmark = pytest.mark.long
COMPILER = "aarch64-linux-gnu-gcc"
EM_AARCH64, EM_BPF = 183, 247


def done(*words: str | Path, cwd: Path = REPOSITORY, **more: str) -> str:
    """What a command says, with the programs of the environment."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}
    ended = subprocess.run(
        words, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("install", [] if (REPOSITORY / ".git").exists() else ["not a clone"])
    require("install", [] if shutil.which(COMPILER) else [f"no {COMPILER}: make setup-long"])
    folder = tmp_path_factory.mktemp("dist")
    for each in ("ingero", "ingero-0.0.1.tar.gz", "ingero-0.0.1-cp311-abi3-manylinux_2_34_x86_64.whl"):
        (folder / each).touch()
    done("tools/dist.sh", folder)
    return folder


@pytest.fixture(scope="module")
def rebuilt(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the source archive makes, far from the clone."""
    folder = tmp_path_factory.mktemp("source")
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    done("tools/wheel.sh", folder / "made", cwd=source)
    (wheel,) = (folder / "made").iterdir()
    return wheel


def of(dist: Path, machine: str) -> Path:
    (found,) = dist.glob(f"*_{machine}.whl")
    return found


def contents(wheel: Path) -> dict[str, bytes]:
    """Without the record of sizes; vendored libraries by their names without their hashes."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            re.sub(r"-[0-9a-f]{8}\.so", ".so", name): archive.read(name)
            for name in archive.namelist()
            if not name.endswith(("/RECORD", "/"))
        }


def test_it_makes_a_source_archive_and_two_wheels_and_takes_only_older_ones_away(dist: Path) -> None:
    """`make onefile` puts its file there, too."""
    tag = f"{__version__}-cp311-abi3-manylinux_2_34"
    made = {f"ingero-{each}" for each in (f"{__version__}.tar.gz", f"{tag}_aarch64.whl", f"{tag}_x86_64.whl")}
    assert {each.name for each in dist.iterdir()} == {"ingero", *made}


def test_the_source_archive_makes_the_same_wheel(dist: Path, rebuilt: Path) -> None:
    assert rebuilt.name == of(dist, "x86_64").name
    ours, theirs = contents(of(dist, "x86_64")), contents(rebuilt)
    assert theirs.keys() == ours.keys()
    compiled = (".so", ".o", ".0", ".1", ".12", ".2")
    different = [name for name in ours if ours[name] != theirs[name] and not name.endswith(compiled)]
    assert different == []


def test_the_wheel_of_the_source_archive_works(rebuilt: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    done(*pip, "--no-index", "--target", tmp_path / "site", rebuilt)
    python = {
        "PYTHONPATH": str(tmp_path / "site"),
        "INGERO_DB": str(tmp_path / "demo.db"),
        "HOME": str(tmp_path),
    }
    where = "import ingero, ingero.native._shim as native; print(ingero.__file__, native.__file__)"
    told = done(sys.executable, "-c", where, cwd=tmp_path, **python)
    assert [each.startswith(f"{tmp_path}/site/ingero/") for each in told.split()] == [True, True]
    words = ("demo", "--no-gpu", "--no-tui", "--speed", "20", "incident")
    assert "[HIGH] stress-ng" in done(sys.executable, "-m", "ingero", *words, cwd=tmp_path, **python)


def machine_of(elf: bytes) -> int:
    assert elf[:4] == b"\x7fELF"
    return int(struct.unpack_from("<H", elf, 18)[0])


def test_the_wheel_for_arm64_has_its_native_module_and_its_libraries(dist: Path) -> None:
    found = contents(of(dist, "aarch64"))
    native = {name: machine_of(data) for name, data in found.items() if re.search(r"/_shim.*\.so$", name)}
    assert native == {"ingero/native/_shim.abi3.so": EM_AARCH64}
    libraries = {name: machine_of(data) for name, data in found.items() if name.startswith("ingero.libs/")}
    assert {re.split(r"[-.]", name.split("/")[1])[0] for name in libraries} >= {"libbpf", "libelf"}
    assert set(libraries.values()) == {EM_AARCH64}


def test_the_wheel_for_arm64_has_its_probes(dist: Path) -> None:
    found = contents(of(dist, "aarch64"))
    probes = [path.name.removesuffix(".bpf.c") for path in under("probes") if path.name.endswith(".bpf.c")]
    objects = {f"ingero/native/bpf/{name}.aarch64.bpf.o" for name in probes}
    assert objects <= found.keys()
    assert {machine_of(found[name]) for name in objects} == {EM_BPF}


def test_the_wheel_for_arm64_has_the_same_python_as_the_other(dist: Path) -> None:
    ours, theirs = contents(of(dist, "x86_64")), contents(of(dist, "aarch64"))
    python = {name for name in ours if name.endswith((".py", ".js", ".html", ".css"))}
    assert len(python) > 100
    assert not [name for name in python if theirs.get(name) != ours[name]]
