"""Makes dist/ingero_VERSION_ARCHITECTURE.deb of what `make install` installs: `python -m tools.deb WHEEL`.

What it depends on is inside, for one minor version of Python: that of .venv, so Debian's has to be the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from ingero import __version__
from tools import install

BUILD, FOLDER, TEXTS = Path("build/deb"), Path("dist"), Path("deploy/debian")
PREFIX = Path("/usr")
MAJOR, MINOR = sys.version_info[:2]


def said(*words: str | Path) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(wheel: Path, build: Path = BUILD, folder: Path = FOLDER) -> None:
    shutil.rmtree(build, ignore_errors=True)
    below = build / "usr"
    install.install(wheel, PREFIX, below, python=Path(f"/usr/bin/python{MAJOR}.{MINOR}"))
    (below / install.LIST).unlink()  # dpkg has its own
    # Compiled here: dpkg would not remove what Python writes there later.
    compiling = (sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    said(*compiling, "-s", build, "-p", "/", below / install.PACKAGES)
    architecture = said("dpkg", "--print-architecture")
    control = (
        (TEXTS / "control")
        .read_text()
        .format(
            version=__version__,
            architecture=architecture,
            python=f"{MAJOR}.{MINOR}",
            next_python=f"{MAJOR}.{MINOR + 1}",
            kilobytes=sum(each.stat().st_size for each in build.rglob("*") if each.is_file()) // 1024,
        )
    )
    (build / "DEBIAN").mkdir()
    (build / "DEBIAN/control").write_text(control)
    shutil.copy(TEXTS / "prerm", build / "DEBIAN")
    folder.mkdir(exist_ok=True)
    made = folder / f"ingero_{__version__}_{architecture}.deb"
    said("dpkg-deb", "--root-owner-group", "-Zxz", "--build", build, made)
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
