"""One run of one job: its folder, its processes, what is put around it, and the end of all of it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.truth import leftovers
from benchmarks.truth.jobs.book import Book

JOBS = Path(__file__).parent / "jobs"
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")  # nothing started here outlives the run
GROUPS = Path("/sys/fs/cgroup")


@dataclass
class Stage:
    """Where one run happens; `close` ends it."""

    folder: Path
    db_folder: Path
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    settings: dict[str, Any] = field(default_factory=dict)  # what props add to the job's
    environment: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()  # words before the job's command
    job: subprocess.Popen[str] | None = None
    culprits: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self.job is not None
        return self.job.pid

    @property
    def book_path(self) -> Path:
        return self.folder / "book"

    @property
    def book(self) -> Book:
        return Book(self.book_path)

    def start(self, *command: str | Path, ready: bool = False, **more: Any) -> subprocess.Popen[str]:
        """A process in a session of its own, killed with all its children at the end."""
        process = subprocess.Popen(
            [*WITH_PARENT, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if ready else subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            cwd="/",
            env=job_environment() | self.environment,
            **more,
        )
        self.ends.callback(end, process)
        if ready and process.stdout and not process.stdout.readline().startswith("ready"):
            raise RuntimeError(f"{' '.join(map(str, command[:4]))} did not start")
        return process

    def start_job(self, script: str, usual: dict[str, Any], later: dict[str, Any]) -> None:
        plan = {"usual": usual | self.settings, "later": later}
        (self.folder / "settings.json").write_text(json.dumps(plan))
        words = (sys.executable, JOBS / f"{script}.py", self.folder / "settings.json", self.book_path)
        log = self.ends.enter_context((self.db_folder / "job.log").open("a"))
        self.job = self.start(*self.before, *words, ready=True, stderr=log)

    def go(self) -> None:
        assert self.job is not None
        assert self.job.stdin is not None
        self.job.stdin.write("go\n")
        self.job.stdin.flush()

    def python(self, script: str, *words: object) -> tuple[str, ...]:
        return (sys.executable, str(JOBS / f"{script}.py"), *map(str, words))

    def group(self, controller: str, name: str = "") -> Path:
        """A new cgroup of this run."""
        path = GROUPS / controller / (name or f"truth-{secrets.token_hex(4)}")
        for missing in reversed([path, *path.parents]):
            if not missing.exists():
                leftovers.note("group", str(missing))
                missing.mkdir()
                self.ends.callback(leftovers.remove_group, missing)
        return path

    def until(self, true: Callable[[], Any], what: str, timeout_s: float = 20) -> None:
        until(true, what, timeout_s)

    def close(self) -> None:
        self.ends.close()


def until(true: Callable[[], Any], what: str, timeout_s: float = 20) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"did not happen in {timeout_s:.0f} s: {what}")
        time.sleep(0.02)


def job_environment() -> dict[str, str]:
    """Ours without what would change a job or a trace."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("INGERO_", "LD_"))}


def end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def enter(group: Path, pid: int) -> None:
    (group / "cgroup.procs").write_text(str(pid))


def descendants(pid: int) -> list[int]:
    """Children and theirs, now."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found
