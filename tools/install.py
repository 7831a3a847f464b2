"""`make install`, `make uninstall`: `python -m tools.install (install WHEEL | uninstall) PREFIX DESTDIR`.

The program, its packages in lib/ingero, a systemd unit, tmpfiles, completions and man pages, all below
PREFIX. DESTDIR is put before every path that is written, never into what is written.

lib/ingero/installed lists what was made, folders too: a later version uninstalls what an earlier one
installed, and a folder that was there before stays.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from click.shell_completion import get_completion_class

from ingero.serve.cli.main import ingero
from tools import man
from tools.onefile import packages

COMPLETIONS = {
    "bash": "share/bash-completion/completions/ingero",
    "zsh": "share/zsh/site-functions/_ingero",
    "fish": "share/fish/vendor_completions.d/ingero.fish",
}
PACKAGES = "lib/ingero"
LIST = f"{PACKAGES}/installed"
UNIT = Path("deploy/systemd/ingero.service")
# -E -P -s: no module of the current folder, the environment or the user's is taken for ours; and ours come
# first, because Debian may have older ones of the same names.
PROGRAM = """\
#!{python} -EPs
import sys
sys.path.insert(0, "{prefix}/lib/ingero")
from ingero.serve.cli.main import main
sys.exit(main())
"""


def files(prefix: Path, python: Path | None = None) -> dict[str, str]:
    """What is written besides the packages, by its path below the prefix."""
    python = python or Path(sys.executable).resolve()
    unit = UNIT.read_text().replace("/usr/local/bin/ingero", str(prefix / "bin/ingero"))
    return {
        "bin/ingero": PROGRAM.format(python=python, prefix=prefix),
        "lib/systemd/system/ingero.service": unit,
        "lib/tmpfiles.d/ingero.conf": "d /run/ingero 0755 root root -\n",
        **{place: _completion(shell) for shell, place in COMPLETIONS.items()},
        **{f"share/man/man1/{name}": text for name, text in man.pages().items()},
    }


def _completion(shell: str) -> str:
    found = get_completion_class(shell)
    assert found is not None
    return found(ingero, {}, "ingero", "_INGERO_COMPLETE").source()


def install(wheel: Path, prefix: Path, below: Path, python: Path | None = None) -> None:
    uninstall(below)
    texts = files(prefix, python)
    folders = sorted(
        {each for place in (LIST, *texts) for each in missing_above(below / place)}, reverse=True
    )
    made = [*texts, *(os.path.relpath(each, below) for each in folders)]
    for place, text in {LIST: "".join(f"{each}\n" for each in made), **texts}.items():
        path = below / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if place.startswith("bin/") else 0o644)
    packages(below / PACKAGES, wheel)


def missing_above(path: Path) -> Iterator[Path]:
    """The folders that have to be made for it."""
    return (each for each in path.parents if not each.exists())


def uninstall(below: Path) -> None:
    """What the list names: files, then folders from the lowest up, where nothing else is in them."""
    listed = below / LIST
    made = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    shutil.rmtree(below / PACKAGES, ignore_errors=True)
    for path in [Path(os.path.normpath(below / each)) for each in made]:
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif not any(path.iterdir()):
            path.rmdir()


def main(what: str, *words: str) -> None:
    *wheel, prefix, destdir = words
    if not prefix.startswith("/"):
        sys.exit(
            f"install: PREFIX={prefix} is no path that begins with /: the program would not find its packages"
        )
    root = Path(prefix)
    below = Path(destdir + prefix)
    if what == "install":
        install(Path(*wheel), root, below)
    else:
        uninstall(below)


if __name__ == "__main__":
    main(*sys.argv[1:])
