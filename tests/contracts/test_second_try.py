"""What passes only when it is tried again is told, not forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.contracts.tree import ROOT

TEST = "tests/unit/reliability/test_long_page.py::test_the_page_has_room_for_it"


def test_whatever_passes_at_the_second_try_is_listed(tmp_path: Path) -> None:
    listed = tmp_path / "second-try.txt"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    environment |= {"INGERO_SECOND_TRY": str(listed), "INGERO_ATTACH": "multi"}
    words = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", TEST)
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert listed.read_text() == f"{TEST} multi\n"
    assert "passed only at the second try" in done.stdout
    assert "--hypothesis-seed=" in done.stdout
