"""One run of one job: its folder, its processes, and the end of all of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.truth.outside.job import PROGRAMS
from benchmarks.truth.stage import until

ROOM = 200_000  # steps; as programs/runbook.py has it
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")  # nothing started here outlives the run


@dataclass
class Scene:
    """Where a run happens; `close` ends it."""

    folder: Path  # in memory
    out: Path
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    first: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()  # words before the job's command
    groups: list[Path] = field(default_factory=list)  # in which it is born
    culprits: list[int] = field(default_factory=list)
    stdout: Any = None
    pid: int = 0

    def prepare(self) -> None:
        (self.folder / "phase").write_bytes(b"\0")
        with (self.folder / "pace").open("wb") as file:
            file.truncate(ROOM * 8)

    def write_settings(self, first: dict[str, Any], then: dict[str, Any]) -> None:
        """The peers started before the job read it, too: what they are to do is in it."""
        (self.folder / "settings.json").write_text(json.dumps({"first": first | self.first, "then": then}))

    def command(self, program: str) -> list[str]:
        return [*self.before, sys.executable, str(PROGRAMS / program), str(self.folder)]

    def job_environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("INGERO_", "LD_"))}
        return kept | {"PYTHONPATH": str(PROGRAMS)} | self.environment

    def start(self, *command: object, **more: Any) -> subprocess.Popen[bytes]:
        """In a session of its own, killed with all its children at the end."""
        log = self.ends.enter_context((self.out / "around.log").open("ab"))
        wanted: dict[str, Any] = {
            "stderr": log,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "env": self.job_environment(),
        }
        process = subprocess.Popen(
            [*WITH_PARENT, *map(str, command)],
            start_new_session=True,
            cwd="/",
            **(wanted | more),
        )
        self.ends.callback(end, process)
        return process

    def program(
        self, script: str, *words: object, before: tuple[str, ...] = (), **more: Any
    ) -> subprocess.Popen[bytes]:
        return self.start(*before, sys.executable, PROGRAMS / script, *words, **more)

    def start_job(self, program: str) -> None:
        log = self.ends.enter_context((self.out / "job.log").open("ab"))
        process = self.start(
            *self.command(program), stderr=log, stdout=self.stdout or log, preexec_fn=self._enter
        )
        self.pid = process.pid

    def _enter(self) -> None:
        for group in self.groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def family(self) -> list[int]:
        return [self.pid, *descendants(self.pid)]

    def read(self, name: str) -> str:
        """What a program leaves for us in a file."""
        path = self.folder / name
        until(lambda: path.exists() and path.read_text(), f"{name} is there")
        return path.read_text()

    def turn(self) -> None:
        """Its settings are the other ones from now on."""
        with (self.folder / "phase").open("r+b") as file:
            file.write(b"\1")

    def ends_ns(self) -> list[int]:
        """When each step ended."""
        raw = (self.folder / "pace").read_bytes()
        return [end for (end,) in struct.iter_unpack("q", raw) if end]

    def close(self) -> None:
        self.ends.close()


def end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found
