"""Makes dist/ingero: a shell script with a tree behind it, of this interpreter, the wheel and its packages.

`python -m tools.onefile WHEEL`. A tree that is unpacked once starts as quickly as any environment;
one that is unpacked at every start pays for that every time.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

BUILD, TARGET = Path("build/onefile"), Path("dist/ingero")
NOT_NEEDED = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "config-*", "__pycache__",
              "site-packages", "dist-packages", "pydoc_data", "_test*.so", "_tkinter*.so")  # fmt: skip
# Of the machine: they come with its loader.
GLIBC = re.compile(r"^(ld-linux|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|linux-vdso)[.-]")
START = """\
import os, sys
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "packages"))
sys.argv[0] = os.environ.pop("INGERO_FILE", sys.argv[0])
from ingero.serve.cli.main import main
sys.exit(main())
"""


def run(*words: str | Path) -> str:
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def interpreter(tree: Path) -> None:
    """This Python with its library; both find each other from where they lie."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = tree / "bin/python3"
    program.parent.mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), program)
    library = tree / "lib" / version
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=shutil.ignore_patterns(*NOT_NEEDED))
    for file in (program, *library.glob("lib-dynload/*.so")):
        for name, path in linked(file).items():
            if not GLIBC.match(name) and not (tree / "lib" / name).exists():
                shutil.copy(path, tree / "lib" / name)
    run("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", program)
    for file in (*library.glob("lib-dynload/*.so"), *(tree / "lib").glob("*.so*")):
        run("patchelf", "--remove-rpath", file)
        run("strip", "--strip-debug", file)  # the names of functions stay: traces of Python look for some


def linked(file: Path) -> dict[str, str]:
    """The libraries a file needs, and what they need."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", file), re.MULTILINE))


def packages(folder: Path, wheel: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--no-compile", "--target", str(folder), "--only-binary=:all:"]
    run(*pip, "--require-hashes", "-r", "requirements/run.txt")
    run(*pip, "--upgrade", wheel)
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for tests in [*folder.glob("numpy/**/tests")]:
        shutil.rmtree(tests)


def pack(tree: Path) -> bytes:
    # Compiled here: nobody may write there later, and a changed file does not count.
    run(sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", tree)
    archive = tree.parent / "tree.tgz"
    with tarfile.open(archive, "w:gz", compresslevel=9) as file:
        file.add(tree, arcname=".")
    return archive.read_bytes()


def head(payload: bytes) -> bytes:
    text = Path(__file__).with_name("onefile_head.sh").read_text()
    text = text.replace("@VERSION@", hashlib.sha256(payload).hexdigest()[:16])
    for size in (len(text) - 8, len(text) - 9):  # its own length, written in as many digits as it has
        if len(made := text.replace("@HEAD_BYTES@", str(size))) == size:
            return made.encode()
    raise AssertionError("the head is of another length")


def main(wheel: Path, build: Path = BUILD, target: Path = TARGET) -> None:
    shutil.rmtree(build, ignore_errors=True)
    tree = build / "tree"
    interpreter(tree)
    packages(tree / "packages", wheel)
    (tree / "bin/ingero").write_text(START)
    payload = pack(tree)
    target.write_bytes(head(payload) + payload)
    target.chmod(0o755)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
