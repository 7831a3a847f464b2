"""`ingero demo --live` and `--gpu`: a real job, and whoever gets in its way.

They are processes of their own, and the agent traces them like any others. They are
started with the curtain down: the job begins when the probes are on.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from ingero import isolated
from ingero.errors import TargetError
from ingero.scenarios import cuda
from ingero.scenarios.scenario import Live, Work
from ingero.units import clean

CARD = Path("/dev/nvidiactl")
DRIVER = "libcuda.so.1"


def has_card() -> bool:
    """An NVIDIA driver is loaded here."""
    return CARD.exists()


def require_card() -> None:
    if not has_card():
        raise TargetError(
            f"there is no NVIDIA GPU here: no {CARD}",
            hint="`sudo ingero demo --live` shows the same without one.",
        )


class Stage:
    """The job and the others, from start to end; nothing of them is left afterwards."""

    def __init__(self, live: Live, *, gpu: bool) -> None:
        self._live = live
        self._folder = tempfile.TemporaryDirectory(prefix="ingero-demo-")
        self._library = DRIVER if gpu else str(cuda.stub_dir() / DRIVER)
        self._environment: dict[str, str] = {}
        if not gpu:
            device = str(Path(self._folder.name) / "device")
            self._environment = {"INGERO_STUB_DEVICE": device, **live.stub}
        self._cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[-live.cores :])) if live.cores else ""
        self._complaints = (Path(self._folder.name) / "stderr").open("w+")
        self._over = threading.Event()
        self._others: list[subprocess.Popen[str]] = []
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Stage:
        try:
            self._job = self._start(self._live.work)
            self._rival = self._start(self._live.rival) if self._live.rival else None
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pids(self) -> tuple[int, ...]:
        """Whom to trace."""
        return tuple(each.pid for each in (self._job, self._rival) if each)

    def begin(self) -> None:
        """Curtain up."""
        _tell(self._job)
        self._thread = threading.Thread(target=self._disturb, name="stage")
        self._thread.start()

    def require_success(self) -> None:
        """The job runs until it is ended: one that ended by itself has failed."""
        if self._job.poll() is None:
            return
        self._complaints.seek(0)
        said = self._complaints.read().strip().splitlines()
        raise TargetError(
            f"the demo's job failed: {clean(said[-1], 200) if said else f'exit code {self._job.returncode}'}",
            hint="`ingero demo --no-gpu` shows the same without a job.",
        )

    def says(self, elapsed_s: float) -> str:
        told = [text for second, text in self._live.says if second <= elapsed_s]
        return told[-1] if told else ""

    def _start(self, work: Work) -> subprocess.Popen[str]:
        words = [self._library, json.dumps(asdict(work))]
        if self._cores:
            words.append(self._cores)
        process = isolated.start(
            "ingero.scenarios.workload",
            *words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=self._environment,
            text=True,
            start_new_session=True,  # Ctrl-C is for us
        )
        self._others.append(process)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise TargetError(
                f"the demo's job did not start: {self._library} cannot be loaded",
                hint="`ingero check` says which CUDA libraries are here; `ingero demo --no-gpu` needs none.",
            )
        return process

    def _disturb(self) -> None:
        """What goes wrong, at its time."""
        first, last = self._live.between
        if last <= first or self._over.wait(first):
            return
        if self._rival:
            _tell(self._rival)
        disturbing = [self._neighbour() for _ in range(self._live.neighbours * self._count())]
        self._over.wait(last - first)
        for process in disturbing:
            process.kill()
        if self._rival and self._rival.stdin:  # it ends after its iteration
            with contextlib.suppress(OSError):
                self._rival.stdin.close()

    def _count(self) -> int:
        return self._cores.count(",") + 1

    def _neighbour(self) -> subprocess.Popen[str]:
        process = isolated.start(
            "ingero.scenarios.busy_neighbour",
            self._cores,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._others.append(process)
        return process

    def _end(self) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()
        for process in self._others:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()
        self._complaints.close()
        self._folder.cleanup()


def _tell(process: subprocess.Popen[str]) -> None:
    """Begin."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("go\n")
        process.stdin.flush()
