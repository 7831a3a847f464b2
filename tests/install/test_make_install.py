"""`make install` below a prefix: what it writes, that it runs there, and that uninstalling takes it away."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ingero.serve.cli.main import COMMANDS
from tests.conftest import require
from tools import install, man


def test_every_command_has_a_man_page() -> None:
    assert {"ingero.1", "ingero-fleet-push.1", *(f"ingero-{name}.1" for name in COMMANDS)} <= set(man.pages())


def test_a_man_page_has_every_option_that_help_has() -> None:
    page = man.pages()["ingero-trace.1"]
    for option in ("\\-\\-duration", "\\-\\-record\\-all", "\\-\\-prometheus"):
        assert option in page


@pytest.mark.long
def test_groff_has_no_complaint_about_a_man_page() -> None:
    require("install", [] if shutil.which("groff") else ["no groff: make setup-long"])
    for name, text in man.pages().items():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z"], input=text, capture_output=True, text=True
        )
        assert not done.stderr, name


def test_what_is_written_names_the_prefix_and_nothing_before_it() -> None:
    written = install.files(Path("/opt/elsewhere"))
    assert "ExecStart=/opt/elsewhere/bin/ingero trace" in written["lib/systemd/system/ingero.service"]
    assert 'sys.path.insert(0, "/opt/elsewhere/lib/ingero")' in written["bin/ingero"]


def tree(top: Path) -> set[str]:
    """Every file and folder below it."""
    return {str(path.relative_to(top)) for path in top.rglob("*")}


@pytest.mark.long
def test_it_runs_from_its_prefix_and_uninstalling_leaves_only_what_was_there(
    wheel: Path, tmp_path: Path
) -> None:
    """Installed twice, as by an update; what others have put there stays, empty folders too."""
    prefix = tmp_path / "opt/usr"
    (prefix / "share/man/man1").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin/other").touch()
    before = tree(tmp_path)
    install.install(wheel, prefix, prefix)
    install.install(wheel, prefix, prefix)
    said = subprocess.run([prefix / "bin/ingero", "version"], capture_output=True, text=True, cwd="/")
    assert re.match(r"ingero [\d.]+\n", said.stdout), said.stderr
    (prefix / "share/fish/of-others").touch()
    install.uninstall(prefix)
    assert tree(tmp_path) - before == {"opt/usr/share/fish", "opt/usr/share/fish/of-others"}
    assert before <= tree(tmp_path)


@pytest.mark.parametrize("prefix", ["", "opt", "~/.local"])
def test_a_prefix_that_is_no_whole_path_is_refused_before_anything_is_written(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("install", "a.whl"), ("uninstall",)):
        with pytest.raises(SystemExit, match="begins with /"):
            install.main(*words, prefix, "")
    assert tree(tmp_path) == set()


@pytest.mark.long
def test_nothing_at_all_is_left_below_a_destdir(wheel: Path, tmp_path: Path) -> None:
    root = tmp_path / "made/root"
    install.main("install", str(wheel), "/usr/local", str(root))
    assert (root / "usr/local/bin/ingero").exists()
    install.main("uninstall", "/usr/local", str(root))
    assert tree(tmp_path) == set()
