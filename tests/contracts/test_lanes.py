"""Every folder of tests is run by make test, or is known to be run elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Run by `make unit`, by `make test-traced`, and by targets of their own on other machines.
ELSEWHERE = {"unit", "contracts", "ebpf", "kernels", "gpu"}


def test_every_folder_of_tests_is_run() -> None:
    services = re.search(r"^SERVICES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert services
    folders = {
        found.parent.relative_to(ROOT / "tests").parts[0] for found in (ROOT / "tests").rglob("test_*.py")
    }
    assert folders == {*services[1].split(), *ELSEWHERE}


# What CI may not have: other kernels, other interpreters, recordings that are not in the tree, empty roots to
# install in, npm's registry.
MAY_BE_MISSING = {"kernels", "pythons", "shared", "install", "inspector"}


def test_what_tests_want_and_setup_installs_must_be_there_in_ci() -> None:
    """A test that only skips is one nobody notices."""
    tests = [each for each in (ROOT / "tests").rglob("*.py") if each != Path(__file__)]
    wanted = {name for each in tests for name in re.findall(r'\brequire\("([\w-]+)"', each.read_text())}
    must = re.search(r'^must="(.*)"$', (ROOT / ".ci/run").read_text(), re.MULTILINE)
    of_root = re.search(r"^export INGERO_MUST_RUN \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert must
    assert of_root
    assert wanted >= MAY_BE_MISSING
    assert set(must[1].split()) == wanted - MAY_BE_MISSING
    assert set(of_root[1].split()) == set(must[1].split()) - {"browser"}  # Chromium is not everybody's
