"""What is said of other kernels is what was tried on them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.tree import ROOT
from tools.kernels import image, results


def test_the_virtual_machine_has_all_that_its_tests_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    image.copy_tests(tmp_path / "copy")
    words = ("-m", "pytest", "tests/kernels", "--collect-only", "-q", "-p", "no:cacheprovider")
    found = subprocess.run(
        [sys.executable, *words], cwd=tmp_path / "copy", capture_output=True, text=True, timeout=100
    )
    assert found.returncode == 0, found.stdout


def test_the_table_of_kernels_is_that_of_what_was_tried() -> None:
    page = (ROOT / results.PAGE).read_text(encoding="utf-8")
    assert results.with_table(page, ROOT) == page, "run `make test-kernels`"


def test_the_probes_are_those_that_were_tried_on_other_kernels() -> None:
    """Not a failure: trying takes many minutes, and is due before a release."""
    if outdated := results.outdated(ROOT):
        pytest.skip(f"the probes changed since they were tried on {'; '.join(outdated)}: make test-kernels")
