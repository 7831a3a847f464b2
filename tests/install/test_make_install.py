"""`make install` below a prefix: what it writes, that it runs there, and that uninstalling takes it away."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ingero.serve.cli.main import COMMANDS
from tools import install, man


def test_every_command_has_a_man_page() -> None:
    assert {"ingero.1", "ingero-fleet-push.1", *(f"ingero-{name}.1" for name in COMMANDS)} <= set(man.pages())


def test_a_man_page_has_every_option_that_help_has() -> None:
    page = man.pages()["ingero-trace.1"]
    for option in ("\\-\\-duration", "\\-\\-record\\-all", "\\-\\-prometheus"):
        assert option in page


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
def test_groff_has_no_complaint_about_a_man_page() -> None:
    for name, text in man.pages().items():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z"], input=text, capture_output=True, text=True
        )
        assert not done.stderr, name


def test_what_is_written_names_the_prefix_and_nothing_before_it() -> None:
    written = install.files(Path("/opt/elsewhere"))
    assert "ExecStart=/opt/elsewhere/bin/ingero trace" in written["lib/systemd/system/ingero.service"]
    assert '"/opt/elsewhere/lib/ingero"' in written["bin/ingero"]


@pytest.mark.long
def test_it_runs_from_its_prefix_and_uninstalling_leaves_no_file(wheel: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "usr"
    install.install(wheel, prefix, prefix)
    said = subprocess.run([prefix / "bin/ingero", "version"], capture_output=True, text=True, cwd="/")
    assert re.match(r"ingero [\d.]+\n", said.stdout), said.stderr
    install.uninstall(prefix, prefix)
    assert not [path for path in prefix.rglob("*") if path.is_file()]
