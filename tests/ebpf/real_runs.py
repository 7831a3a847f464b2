"""The installed `ingero` run as a user runs it, and what is left of it afterwards.

Every run has its own lock directory, home and database, so that traces of other
people on this machine are not in the way.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ingero.discover.libraries import kind_of, read_maps
from ingero.scenarios import cuda
from tests.command import INGERO
from tests.ebpf.tracing import PATIENCE, Workload

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")


def need_others() -> None:
    """Skipped where other users cannot run our Python: a checkout in the home of root, say."""
    able = subprocess.run([*NOBODY, sys.executable, "-c", "import ingero"], check=False, capture_output=True)
    if able.returncode:
        pytest.skip("other users cannot reach the installed ingero")


TRACEBACK = "Traceback (most recent call last)"
PROG_GET_FD_BY_ID, LINK_GET_FD_BY_ID = 13, 30
UPROBE_LINKS = ("uprobe", "perf")
SYSCALL_BPF = {"x86_64": 321, "aarch64": 280}

LAUNCHES = """
WITH driver AS (SELECT * FROM cuda_events WHERE pid = PID AND op = 'cuLaunchKernel'),
runtime AS (SELECT * FROM cuda_events WHERE pid = PID AND op = 'cudaLaunchKernel')
SELECT (SELECT COALESCE(SUM(weight), 0) FROM driver) + (
    SELECT COALESCE(SUM(weight), 0) FROM runtime r WHERE NOT EXISTS (
        SELECT 1 FROM driver d WHERE d.tid = r.tid
        AND d.timestamp_ns BETWEEN r.timestamp_ns AND r.timestamp_ns + r.duration_ns))
"""


def stub() -> dict[str, str]:
    """So that the libraries of the stub are found; asked for when needed, each attach shape has its own."""
    return {"LD_LIBRARY_PATH": str(cuda.stub_dir())}


def until(true: Callable[[], Any], what: str, timeout_s: float = 20) -> Any:
    """Wait for something that must happen; its value."""
    deadline = time.monotonic() + timeout_s * PATIENCE
    while not (value := true()):
        assert time.monotonic() < deadline, f"did not happen in time: {what}"
        time.sleep(0.02)
    return value


@dataclass
class Place:
    """Where one test's traces live."""

    folder: Path

    @property
    def db(self) -> Path:
        return self.folder / "trace.db"

    def environment(self, **more: str | None) -> dict[str, str]:
        """Ours without what would change a trace; None takes a variable away."""
        ours = {
            name: value
            for name, value in os.environ.items()
            if name in ("INGERO_ATTACH", "INGERO_STUB_DIR") or not name.startswith(("INGERO_", "LD_"))
        }
        ours |= {"INGERO_RUN_DIR": str(self.folder / "run"), "HOME": str(self.folder)}
        ours |= {name: value for name, value in more.items() if value is not None}
        return {name: value for name, value in ours.items() if more.get(name, "") is not None}

    def ingero(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run to the end. Whatever happens, a user never sees a traceback."""
        environment = self.environment(**more.pop("env", {}))
        before = more.pop("before", ())
        done = subprocess.run(
            [*before, *INGERO, *words],
            env=environment,
            text=True,
            errors="replace",
            timeout=more.pop("timeout", 60) * PATIENCE,
            **({"capture_output": True, "stdin": subprocess.DEVNULL} | more),
        )
        assert TRACEBACK not in (done.stderr or ""), done.stderr
        return done

    @contextlib.contextmanager
    def tracing(self, *words: str, attached: bool = True, **more: str) -> Iterator[Run]:
        """A trace in the background, from when its probes are on."""
        run = Run(self, ("trace", "--no-tui", "--db", str(self.db), *words), more)
        try:
            if attached:
                until(run.began, "the trace began")
            yield run
        finally:
            run.kill()
        assert TRACEBACK not in run.err, run.err

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)) as connection:
            return connection.execute(statement).fetchall()

    def counts(self, *pids: int) -> dict[str, int]:
        """Calls by operation as the recording has them."""
        found: dict[str, int] = {}
        for pid, op, count in self.sql("SELECT pid, op, SUM(count) FROM operations GROUP BY pid, op"):
            if not pids or pid in pids:
                found[op] = found.get(op, 0) + count
        return found

    def launches(self, pid: int) -> int:
        """Launches a process made: those seen at the driver, and those seen at the runtime alone."""
        return int(self.sql(LAUNCHES.replace("PID", str(pid)))[0][0])

    def sound(self) -> bool:
        """SQLite finds nothing wrong with the file."""
        return self.sql("PRAGMA integrity_check") == [("ok",)]

    def ended(self) -> list[bool]:
        """For each recording whether it was closed."""
        return [row[0] is not None for row in self.sql("SELECT ended_ns FROM recording ORDER BY id")]


class Run:
    """One `ingero` process; what it prints lies in files so that it never waits for us."""

    def __init__(self, place: Place, words: tuple[str, ...], environment: dict[str, str]) -> None:
        number = len(list(place.folder.glob("run*.out")))
        self._out, self._err = (place.folder / f"run{number}.{end}" for end in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*INGERO, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=place.environment(**environment),
            )
        self.pid = self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def began(self) -> bool:
        """The header comes once the probes are on."""
        assert self.process.poll() is None, self.out + self.err
        return "Probes:" in self.out + self.err

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(30 * PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def until_probed(self, pid: int, folder: Path | None = None) -> None:
        """Wait until this very trace has probes on the runtime and the driver that a process maps."""
        libraries = {f"{folder or cuda.stub_dir()}/{name}" for name in ("libcudart.so.12", "libcuda.so.1")}

        def probed() -> bool:
            links = self.links()
            ours = all(any(may_be_on(path, link) for link in links) for path in libraries)
            return ours and len(self.keepers()) >= len(libraries) and probed_pages(pid) >= libraries

        until(probed, f"{libraries} were probed")
        time.sleep(0.3 * PATIENCE)  # hot functions follow in a link of their own

    def links(self) -> list[str]:
        """What the kernel says about each of its links on libraries; those of perf do not name the file."""
        return [link for pid in self.keepers() for link in uprobe_links(pid)]

    def keepers(self) -> list[int]:
        """The processes that hold its links on libraries, all made; they end when it does."""
        return [pid for pid in children(self.pid) if any(uprobe_links(pid)) and self._executed(pid)]

    def _executed(self, pid: int) -> bool:
        """Until it has made its links a keeper is a copy of the agent."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/exe").readlink() != Path(f"/proc/{self.pid}/exe").readlink()
        return False

    def command(self) -> int:
        """The process of the command that it runs."""
        ours = Path(f"/proc/{self.pid}/cmdline").read_bytes()  # its readers are copies of it
        others = [pid for pid in children(self.pid) if Path(f"/proc/{pid}/cmdline").read_bytes() != ours]
        (pid,) = (pid for pid in others if not any(uprobe_links(pid)))
        return pid

    def kernel_objects(self) -> list[tuple[int, int]]:
        """(command that finds it, id) of every BPF program and link it or its keepers hold."""
        found = []
        folders = [Path(f"/proc/{pid}/fdinfo") for pid in (self.pid, *self.keepers())]
        for info in (each for folder in folders if folder.exists() for each in folder.iterdir()):
            with contextlib.suppress(OSError):
                for line in info.read_text(errors="replace").splitlines():
                    name, _, value = line.partition(":\t")
                    command = {"prog_id": PROG_GET_FD_BY_ID, "link_id": LINK_GET_FD_BY_ID}.get(name)
                    if command:
                        found.append((command, int(value)))
        return found


def in_kernel(kernel_object: tuple[int, int]) -> bool:
    """Whether the kernel still has this program or link."""
    command, number = kernel_object
    attributes = ctypes.create_string_buffer(number.to_bytes(4, "little") + bytes(60))
    fd = ctypes.CDLL(None, use_errno=True).syscall(SYSCALL_BPF[os.uname().machine], command, attributes, 64)
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


def none_in_kernel(objects: list[tuple[int, int]]) -> bool:
    return not any(map(in_kernel, objects))


def code_in_memory(pid: int) -> list[tuple[str, int, bytes]]:
    """(path, offset in the file, code) of every CUDA library a process maps."""
    found = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for mapping in read_maps(pid):
            if mapping.executable and kind_of(mapping.path):
                code = os.pread(memory.fileno(), mapping.end - mapping.start, mapping.start)
                found.append((mapping.path, mapping.offset, code))
    return found


def probed_pages(pid: int) -> set[str]:
    """CUDA libraries whose code in memory is not what lies in the file."""
    changed = set()
    for path, offset, in_memory in code_in_memory(pid):
        with Path(path).open("rb") as file:
            file.seek(offset)
            in_file = file.read(len(in_memory))
        if in_memory[: len(in_file)] != in_file:
            changed.add(path)
    return changed


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in tasks for child in each.read_text().split()]


def uprobe_links(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for info in list(Path(f"/proc/{pid}/fdinfo").iterdir()):
            with contextlib.suppress(OSError):
                text = info.read_text(errors="replace")
                if any(f"link_type:\t{kind}" in text for kind in UPROBE_LINKS):
                    yield text


def may_be_on(path: str, link: str) -> bool:
    """Whether a link is on this file; those of the perf shape do not tell."""
    return path in link or "path:" not in link


def left_alone(pid: int) -> bool:
    """The process runs its own code again, unless somebody else's trace probes the same files."""
    changed = probed_pages(pid)
    if not changed:
        return True
    links = [link for each in Path("/proc").glob("[0-9]*") for link in uprobe_links(int(each.name))]
    return any(may_be_on(path, link) for link in links for path in changed)


def finished(job: Workload) -> dict[str, Any]:
    """Tell a steady job to stop; what it did, none of it wrong."""
    job.start()
    (said,) = job.wait_done()
    assert isinstance(said, dict)
    assert said["failed"] == 0
    return said


def state_of(pid: int) -> str:
    """R, S, T and so on."""
    return _stat(pid)[0]


def _stat(pid: int) -> list[str]:
    """From the state on: what stands before it may contain anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def works(pid: int, ticks: int = 5) -> None:
    """Wait until a job has been on a core for a while, however busy the machine is: it made calls."""

    def spent() -> int:
        return sum(map(int, _stat(pid)[11:13]))

    before = spent()
    until(lambda: spent() >= before + ticks, "the job works")


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
