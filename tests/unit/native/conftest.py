"""Real ELF files: the PyPI libcudart where installed, and freshly compiled ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Compile = Callable[..., Path]


@pytest.fixture
def compile_library(tmp_path: Path) -> Compile:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")

    def build(
        source: str, *flags: str, name: str = "libmade.so", files: dict[str, str] | None = None
    ) -> Path:
        for extra, text in (files or {}).items():
            (tmp_path / extra).write_text(text)
        (tmp_path / "made.c").write_text(source)
        target = tmp_path / name
        command = [compiler, "-shared", "-fPIC", *flags, "-o", str(target), "made.c"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        return target

    return build


@pytest.fixture(scope="session")
def cudart() -> Path:
    """The real runtime: from the installed nvidia-cuda-runtime, or where INGERO_TEST_CUDART points."""
    named = os.environ.get("INGERO_TEST_CUDART")
    found = [Path(named)] if named else []
    for folder in sys.path:
        found += sorted(Path(folder).glob("nvidia/*/lib/libcudart.so*"))
    if not found:
        pytest.skip("nvidia-cuda-runtime is not installed")
    return found[0]
