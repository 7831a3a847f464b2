"""The crowd around the trace: jobs, containers and library files that come and go.

Everything lives below one cgroup, which is the scope of the trace, so that it sees
nothing of what else runs on the machine.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ingero.discover import processes
from ingero.scenarios import cuda

JOB = Path(__file__).parent / "job.py"
LIBRARIES = ("libcuda.so.1", "libcudart.so.12", "libnccl.so.2", "libstubkernels.so")
EVERY_S = 6.0  # a new job
LIVES_S = (5.0, 40.0)
OWN_LIBRARIES_SHARE = 0.2  # jobs with library files of their own, gone with them
ENTER = 'echo $$ > "$0/cgroup.procs" && exec nice -n 5 "$@"'


def cgroup_root() -> Path:
    """Where version 2 is mounted, alone or beside version 1."""
    for mount in processes.cgroup_mounts():
        if not mount.controllers:
            return Path(mount.point)
    raise RuntimeError("no cgroup2 file system is mounted here")


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    container: Path
    libraries: Path | None


@dataclass
class Crowd:
    """`tend` it often; it starts what is due and cleans up after what ended."""

    cgroup: Path
    folder: Path
    run_directory: Path
    seed: int = 1
    hurry: float = 1.0  # so many times as fast as otherwise
    started: int = 0
    failed: list[str] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    next_s: float = 0.0

    def tend(self) -> None:
        for job in [each for each in self.running if each.process.poll() is not None]:
            self.running.remove(job)
            self._clean(job)
        if time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + EVERY_S / self.hurry
            self._start()

    def _start(self) -> None:
        chance = random.Random(self.seed * 1_000_003 + self.started)
        container = self.cgroup / f"docker-{chance.getrandbits(256):064x}.scope"
        container.mkdir()
        libraries = self._own_libraries() if chance.random() < OWN_LIBRARIES_SHARE else None
        lives_s = chance.uniform(*LIVES_S) / self.hurry
        words = (str(libraries or cuda.stub_dir()), str(lives_s), str(self.started), str(self.hurry))
        self.running.append(Running(self._run(container, *words), container, libraries))
        self.started += 1

    def steady(self) -> None:
        """The one job that is there all the time."""
        container = self.cgroup / f"docker-{'0' * 64}.scope"
        container.mkdir()
        forever = str(10**9)
        self.running.append(
            Running(self._run(container, str(cuda.stub_dir()), forever, "0"), container, None)
        )

    def _run(self, container: Path, *words: str) -> subprocess.Popen[bytes]:
        command = ["sh", "-c", ENTER, str(container), sys.executable, "-I", "-S", str(JOB), *words]
        environment = os.environ | {"INGERO_RUN_DIR": str(self.run_directory)}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)

    def _own_libraries(self) -> Path:
        folder = self.folder / f"lib{self.started}"
        folder.mkdir()
        for name in LIBRARIES:
            shutil.copy(cuda.stub_dir() / name, folder)
        return folder

    def _clean(self, job: Running) -> None:
        if job.process.returncode:
            self.failed.append(f"job {job.process.pid} ended with {job.process.returncode}")
        if job.libraries:
            shutil.rmtree(job.libraries)
        for _ in itertools.repeat(None, 50):  # the kernel lets go of the last process a moment later
            with suppress(OSError):
                job.container.rmdir()
                return
            time.sleep(0.02)
        self.failed.append(f"{job.container} cannot be removed")

    def end(self) -> None:
        for job in self.running:
            job.process.kill()
            job.process.wait()
            job.process.returncode = 0
            self._clean(job)
        self.running.clear()


@contextmanager
def crowd(folder: Path, run_directory: Path, seed: int, hurry: float = 1.0) -> Iterator[Crowd]:
    """Whatever happens, its processes and cgroups are gone afterwards."""
    cgroup = cgroup_root() / f"ingero-soak-{os.getpid()}"
    cgroup.mkdir()
    them = Crowd(cgroup, folder, run_directory, seed, hurry)
    try:
        yield them
    finally:
        them.end()
        with suppress(OSError):
            cgroup.rmdir()
