"""The table of docs/install.md: how large what is installed is, its memory, how quickly it starts.

`python -m benchmarks.sizes` after `make dist onefile image`; --write puts it into the page.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from ingero import __version__

PAGE = Path("docs/install.md")
BEGIN, END = "<!-- Written by `python -m benchmarks.sizes --write`; do not edit. -->\n", "<!-- end -->\n"
STARTS = 15


def newest(pattern: str) -> Path:
    found = sorted(Path("dist").glob(pattern))
    if not found:
        sys.exit(f"dist has no {pattern}: make dist onefile")
    return found[-1]


def megabytes(path: Path) -> float:
    """Of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if not each.is_symlink()]
    return sum(each.stat().st_size for each in files if each.is_file()) / 1e6


def image_mb() -> float:
    """Unpacked, as the tool says that has it."""
    for tool in filter(shutil.which, ("docker", "podman")):
        words = [tool, "image", "inspect", "--format", "{{.Size}}", f"ingero:{__version__}"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            return int(done.stdout) / 1e6
    sys.exit("there is no image: make image")


def core(folder: Path) -> Path:
    """An environment with the wheel and what it needs without any extra; its command."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, str(newest("*_x86_64.whl"))], check=True)
    return folder / "bin/ingero"


def start_ms(command: Path, cache: Path) -> float:
    begin = time.perf_counter()
    subprocess.run([command, "--help"], check=True, stdout=subprocess.DEVNULL, env=environment(cache))
    return (time.perf_counter() - begin) * 1000


def environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "INGERO_CACHE": str(cache)}


def peak_mb(command: Path, cache: Path) -> float:
    script = str(Path(__file__).with_name("peak_memory.py"))
    words = [sys.executable, script, str(command.absolute()), "demo", "--no-gpu", "--no-tui", "--speed", "20"]
    demo = {**environment(cache), "INGERO_DB": str(cache / "demo.db")}
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, env=demo)
    return int(done.stdout.split()[-1]) * 1024 / 1e6


def rows(folder: Path) -> Iterator[tuple[str, str]]:
    image = image_mb()
    command, one = core(folder / "core"), newest("ingero").absolute()
    first = start_ms(one, folder)
    pairs = [(start_ms(command, folder), start_ms(one, folder)) for _ in range(STARTS)]  # in turns
    usual = statistics.median(each for each, _ in pairs)
    later = statistics.median(each for _, each in pairs)
    bare = megabytes(folder / "core/lib") - sum(
        megabytes(each) for each in (folder / "core/lib").rglob("pip")
    )
    (tree,) = folder.glob("onefile-*")
    yield "wheel, x86-64", f"{megabytes(newest('*_x86_64.whl')):.1f} MB"
    yield "wheel, arm64", f"{megabytes(newest('*_aarch64.whl')):.1f} MB"
    yield "installed with what the core needs (mostly NumPy), without pip", f"{bare:.0f} MB"
    yield "one file", f"{megabytes(one):.0f} MB; unpacked {megabytes(tree):.0f} MB"
    yield "container image, unpacked", f"{image:.0f} MB"
    yield (
        "peak memory of `ingero demo --no-gpu`, recording and diagnosis",
        f"{peak_mb(command, folder):.0f} MB",
    )
    yield "`ingero --help`, one file against environment", f"{later / usual:.2f} times as long"
    yield "the same, the first time, when it is unpacked", f"{first / usual:.0f} times as long"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"| {what} | {value} |\n" for what, value in rows(Path(folder))]
    table = "".join([BEGIN, "\n| what | how much |\n|---|---|\n", *lines, "\n", END])
    print(table)
    if "--write" in sys.argv:
        text = PAGE.read_text(encoding="utf-8")
        text = re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: table, text, flags=re.DOTALL)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
