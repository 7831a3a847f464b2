"""A root for the virtual machine, as an initramfs: Debian's Python, ingero as installed, the tests.

A file system in memory needs no drivers of the kernel, and every boot begins with the same files.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from tools.kernels.cross import for_arm64
from tools.kernels.packages import Archive, run, unpack

RELEASE = "bookworm"  # of the programs in the machine, whatever its kernel
PROGRAMS = ("python3.11", "libbpf1", "libstdc++6", "busybox-static")
PYTHON = (3, 11)
SITE = "usr/local/lib/python3.11/dist-packages"
WHEELS = (
    "numpy",
    "click",
    "rich",
    "msgspec",
    "PyYAML",
    "platformdirs",
    "pytest",
    "pytest-timeout",
    "pyelftools",
)
BENEATH = ("markdown-it-py", "mdurl", "pygments", "iniconfig", "packaging", "pluggy")
PLATFORM = {"amd64": "x86_64", "arm64": "aarch64"}
MANYLINUX = ("2_17", "2_26", "2_27", "2_28", "2_34")
TESTS = ("*.py", "ebpf", "kernels", "workloads")
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/i18n", "usr/lib/python3.11/test",
            "usr/lib/python3.11/idlelib", "usr/lib/python3.11/lib2to3", f"{SITE}/bin")  # fmt: skip
INIT = Path(__file__).with_name("init.sh")


def build(architecture: str, folder: Path, made_in: Path) -> Path:
    """The initramfs; what does not change from day to day is kept."""
    archive = Archive(RELEASE, architecture, folder / "apt")
    root = folder / f"root-{architecture}"
    if not (root / "ready").exists():
        unpack(archive.fetch(PROGRAMS), root)
        _install_wheels(architecture, root / SITE)
        for each in LEFT_OUT:
            shutil.rmtree(root / each, ignore_errors=True)
        for tests in list((root / SITE).glob("numpy/**/tests")):
            shutil.rmtree(tests)
        (root / "ready").touch()
    _install_ours(architecture, root, archive, folder, made_in)
    if sys.version_info[:2] == PYTHON:  # compiled here what would be compiled there, ten times as slowly
        run(sys.executable, "-m", "compileall", "-q", "-j2", "--invalidation-mode", "unchecked-hash",
            root / SITE, root / "ingero", root / "usr/lib/python3.11")  # fmt: skip
        writing = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        run(sys.executable, "-m", "pytest", "tests/kernels", "--collect-only", "-q", "-p", "no:cacheprovider",
            cwd=root / "ingero", env=writing)  # fmt: skip
    image = folder / f"root-{architecture}.cpio"
    with image.open("wb") as file:
        for chunk in archived(root):
            file.write(chunk)
    return image


def _install_wheels(architecture: str, site: Path) -> None:
    pinned = [f"{name}=={metadata.version(name)}" for name in (*WHEELS, *BENEATH)]
    platforms = [
        word for each in MANYLINUX for word in ("--platform", f"manylinux_{each}_{PLATFORM[architecture]}")
    ]
    run(sys.executable, "-m", "pip", "install", "--quiet", "--target", site, "--python-version", "3.11",
        "--only-binary=:all:", "--no-deps", "--no-compile", *platforms, *pinned)  # fmt: skip


def _install_ours(architecture: str, root: Path, archive: Archive, folder: Path, made_in: Path) -> None:
    import ingero

    package = root / SITE / "ingero"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(Path(ingero.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    if architecture == "arm64":
        for place, file in for_arm64(made_in, archive, folder / "cross").items():
            shutil.copyfile(file, package / place)
    shutil.rmtree(root / "ingero", ignore_errors=True)
    copy_tests(root / "ingero")
    shutil.copy(INIT, root / "init")
    (root / "init").chmod(0o755)
    (root / "usr/bin/python3").unlink(missing_ok=True)
    (root / "usr/bin/python3").symlink_to("python3.11")


def copy_tests(folder: Path) -> None:
    """What the tests of a kernel need of this repository, beside ingero itself."""
    (folder / "tests").mkdir(parents=True)
    shutil.copy("pyproject.toml", folder)
    for source in (each for pattern in TESTS for each in Path("tests").glob(pattern)):
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / source)


def archived(root: Path) -> Iterator[bytes]:
    """The files in the kernel's format ("newc"), all of them owned by root."""
    for number, path in enumerate([*sorted(root.rglob("*")), None], start=1):
        name = "TRAILER!!!" if path is None else str(path.relative_to(root))
        status = None if path is None else path.lstat()
        data = b""
        if path and status and stat.S_ISLNK(status.st_mode):
            data = os.fsencode(path.readlink())
        elif path and status and stat.S_ISREG(status.st_mode):
            data = path.read_bytes()
        mode = status.st_mode if status else 0
        seconds = int(status.st_mtime) if status else 0
        words = (number, mode, 0, 0, 1, seconds, len(data), 0, 0, 0, 0, len(os.fsencode(name)) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % word for word in words) + os.fsencode(name) + b"\0"
        yield head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
