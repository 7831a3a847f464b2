"""Programs to trace, and the installed `ingero` tracing them as users run it.

Every trace has a lock folder, home and database of its own, so that a trace that
runs on the machine anyway is not in the way.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ingero.scenarios import cuda

HERE = Path(__file__).parent
WORKLOADS = HERE.parent / "tests" / "workloads"
BUILT = HERE.parent / "build" / "bench"
INGERO = (sys.executable, "-m", "ingero")
STARTED = "Probes:"  # the header comes when the probes are on


def compiled(source: Path, *flags: str) -> Path:
    """A program in C, linked with the stub's runtime."""
    BUILT.mkdir(parents=True, exist_ok=True)
    target, stub = BUILT / source.stem, str(cuda.stub_dir())
    linked = ("-L", stub, "-l:libcudart.so.12", f"-Wl,-rpath,{stub}", f"-Wl,-rpath-link,{stub}")
    command = ["gcc", "-O2", "-I", str(WORKLOADS), str(source), "-o", str(target), *flags, *linked]
    subprocess.run(command, check=True)
    return target


class Job:
    """A program that says `ready PID`, and answers every line with one of JSON."""

    def __init__(self, *command: str | Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        ready = self._read().split()
        if ready[:1] != ["ready"]:
            raise RuntimeError(f"{command[0]} did not start: {' '.join(ready)}")
        self.pid = int(ready[1])

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def start(self, line: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._read())
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def job(*command: str | Path, **environment: str) -> Iterator[Job]:
    """Whatever happens, it is gone afterwards."""
    running = Job(*command, **environment)
    try:
        yield running
    finally:
        running.kill()


class Trace:
    """One `ingero trace` in the background."""

    def __init__(self, folder: Path, *words: str, ingero: Sequence[str] = INGERO) -> None:
        self.db = folder / "trace.db"
        self._log = folder / "trace.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*ingero, "trace", "--no-tui", "--db", str(self.db), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(folder),
            )
        self.pid = self.process.pid

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_attached(self) -> None:
        deadline = time.monotonic() + 30
        while STARTED not in self.said:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the trace did not start: {self.said.strip()[-500:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """By SIGTERM: a run in the background passes on that SIGINT is ignored."""
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60):
            raise RuntimeError(f"the trace failed: {self.said.strip()[-500:]}")

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)) as connection:
            return connection.execute(statement, values).fetchall()


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("INGERO_", "LD_"))}
    return kept | {"INGERO_RUN_DIR": str(folder / "run"), "HOME": str(folder)}


@contextmanager
def tracing(folder: Path, *words: str, ingero: Sequence[str] = INGERO) -> Iterator[Trace]:
    """A trace whose probes are on; whatever happens, it is gone afterwards."""
    trace = Trace(folder, *words, ingero=ingero)
    try:
        trace.wait_attached()
        yield trace
    finally:
        trace.process.kill()
        trace.process.wait()
