"""The command of `trace -- COMMAND`: it is the caller's own, root only when asked for."""

from __future__ import annotations

import os
import pwd
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingero.agent.command import Command
from ingero.errors import UsageError
from ingero.serve.cli.main import main

USER = pwd.getpwnam("nobody")
GROUP = 65533
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
TELL = 'cat /proc/self/status > "$0"; env > "$0.env"'


@pytest.fixture
def file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name) / "told"


@pytest.fixture
def sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"UID": USER.pw_uid, "GID": GROUP, "USER": "nobody", "COMMAND": "ingero"}.items():
        monkeypatch.setenv(f"SUDO_{name}", str(value))
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("PYTHONHASHSEED", "7")


def told_by_command(file: Path, as_root: bool = False) -> tuple[dict[str, list[str]], dict[str, str]]:
    """What the command is, as the kernel has it, and its environment."""
    command = Command(("/bin/sh", "-c", TELL, str(file)), as_root=as_root)
    command.start()
    command.release()
    assert command.wait(threading.Event()) == 0
    status = (line.split(":", 1) for line in file.read_text().splitlines())
    environment = Path(f"{file}.env").read_text().splitlines()
    return {name: words.split() for name, words in status}, dict(line.split("=", 1) for line in environment)


@needs_root
@pytest.mark.usefixtures("sudo")
def test_under_sudo_the_command_is_the_callers_in_every_respect(file: Path) -> None:
    told, environment = told_by_command(file)
    assert told["Uid"] == [str(USER.pw_uid)] * 4
    assert told["Gid"] == [str(GROUP)] * 4
    assert set(map(int, told["Groups"])) == set(os.getgrouplist("nobody", GROUP))
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(told[name][0], 16) == 0
    assert int(told["SigIgn"][0], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0
    assert (environment["HOME"], environment["USER"]) == (USER.pw_dir, "nobody")
    assert environment["PYTHONHASHSEED"] == "7"  # the user's own setting, for the user's own program
    assert not [name for name in environment if name.startswith("SUDO_")]


@needs_root
@pytest.mark.usefixtures("sudo")
def test_the_command_is_root_when_that_is_asked_for(file: Path) -> None:
    told, environment = told_by_command(file, as_root=True)
    assert told["Uid"] == ["0"] * 4
    assert environment["USER"] == "root"


def test_without_sudo_the_command_is_what_we_are(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    told, environment = told_by_command(file)
    assert told["Uid"] == [str(os.geteuid())] * 4
    assert environment["PATH"] == os.environ["PATH"]


@needs_root
@pytest.mark.usefixtures("sudo")
def test_a_command_of_the_callers_that_is_never_released_never_runs(file: Path) -> None:
    command = Command(("/bin/sh", "-c", f"touch {file}"))
    command.start()
    command.close()
    assert not file.exists()


def test_as_root_without_a_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--as-root"]) == UsageError("").exit_code
    assert "--as-root is for a command" in capsys.readouterr().err
