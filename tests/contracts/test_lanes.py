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
