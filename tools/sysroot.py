"""Unpacks Debian's arm64 libbpf, and what it links to, for a compiler: `python -m tools.sysroot FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.kernels.packages import Archive, UnavailableError, unpack

RELEASE = "bookworm"  # as old as may be: a wheel needs the glibc its libraries were built with


def main(folder: Path) -> None:
    if (folder / "ready").exists():
        return
    archive = Archive(RELEASE, "arm64", folder.absolute().parent / "apt")
    unpack(archive.fetch(["libbpf-dev"], only=r"^(libbpf|libelf|zlib)"), folder)
    (folder / "ready").touch()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except UnavailableError as error:
        sys.exit(f"sysroot: {error}")
