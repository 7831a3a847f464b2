"""Python started from here: only our own modules run in it, whatever the current folder and environment hold.

ingero often runs as root in a folder that belongs to somebody else. Python would take a
`json.py` from there, or from a folder in PYTHONPATH. This is the only module that
starts an interpreter (`tests/contracts/test_interpreters.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).resolve().parent.parent  # where ingero is installed, and what it needs
ELSEWHERE = "/"  # a folder in which nobody else can put anything
# -P: nothing from the current folder or the script's. -E: no PYTHON variable counts.
# -s, where we run with it: packages of the user's are not wanted.
FLAGS = ("-E", "-P", *(("-s",) if sys.flags.no_user_site else ()))


def start(module: str, *words: str, env: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[Any]:
    """Start a module of ours in a safe place; `env` is added to the environment."""
    return subprocess.Popen(command(module, *words), cwd=ELSEWHERE, env=environment() | (env or {}), **more)


def command(module: str, *words: str) -> list[str]:
    """What runs a module of ours as `python -m MODULE WORDS` would."""
    return [sys.executable, *FLAGS, str(Path(__file__).resolve()), module, *words]


def reader_of_input() -> tuple[str, ...]:
    """The command of a process that reads its input to the end and does nothing else."""
    return sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"


def environment() -> dict[str, str]:
    """Ours, without what would change the interpreters started in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _run() -> None:
    """In the new process: become the module that was named."""
    import runpy

    if str(PACKAGES) not in sys.path:
        # Installed where only the program that started us looks; this Python may have older packages.
        sys.path.insert(0, str(PACKAGES))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
