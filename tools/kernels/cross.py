"""What of ingero is machine code, compiled for arm64.

Which files make what, and with which options, is asked of the build that was made here: nothing is
written down twice. The headers of Python are those of this machine, which say the same on every
64-bit one as long as only the limited API is used.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.kernels.packages import Archive, run, unpack

COMPILER = "aarch64-linux-gnu-gcc"
NOT_THERE = re.compile(r"-fcf-protection")  # of x86-64
STUB = "src/ingero/scenarios/stub/"


def for_arm64(made_in: Path, archive: Archive, folder: Path) -> dict[str, Path]:
    """The files made, by where in the package they belong."""
    headers = folder / "headers"
    unpack(archive.fetch(["libbpf-dev"], only="^libbpf"), headers)
    targets = json.loads(run(".venv/bin/meson", "introspect", "--targets", made_in))
    made: dict[str, Path] = {}
    for target in targets:
        if target["type"] in ("shared module", "shared library"):
            built = Path(target["filename"][0]).relative_to(made_in.absolute())
            compiled, linked = target["target_sources"]
            output = folder / "made" / built
            output.parent.mkdir(parents=True, exist_ok=True)
            run(
                COMPILER, *_fitting(compiled["parameters"]), *compiled["sources"], f"-I{headers}/usr/include",
                *(_library(word, headers, folder / "made") for word in linked["parameters"]), "-o", output,
            )  # fmt: skip
            made[_installed(str(built))] = output
    return made


def _fitting(parameters: list[str]) -> list[str]:
    return [word for word in parameters if not NOT_THERE.match(word)]


def _library(word: str, headers: Path, made: Path) -> str:
    if word.startswith(STUB):
        return str(made / word)
    if re.match(r"/.*/lib\w+\.so$", word):
        return next(str(each) for each in headers.glob(f"usr/lib/*/{Path(word).name}"))
    return word


def _installed(built: str) -> str:
    """In the package; the names that meson has for it are those of another file of the same name."""
    return built.replace(STUB, "scenarios/stub/lib/") if built.startswith(STUB) else f"native/{built}"
