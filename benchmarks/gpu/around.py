"""What else runs beside a job: others on its cores, others on its card."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import jobs

JOBS = Path(__file__).parent / "jobs"
HOG = "while True: pass"


def _hogs(count: int, cores: Sequence[int]) -> list[subprocess.Popen[bytes]]:
    words = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-c", HOG]
    return [subprocess.Popen(words) for _ in range(count)]


@contextmanager
def around(names: Sequence[str], cores: Sequence[int], folder: Path) -> Iterator[list[int]]:
    """The ids of those who are to be named."""
    with contextlib.ExitStack() as ends:
        culprits: list[int] = []
        for name in names:
            if name == "second-job":
                others = [core for core in sorted(os.sched_getaffinity(0)) if core not in cores][:4]
                listed = ",".join(map(str, others))
                other = ends.enter_context(
                    jobs.job(
                        "taskset",
                        "-c",
                        listed,
                        sys.executable,
                        JOBS / "paced.py",
                        "large-training",
                        folder / "other",
                    )
                )
                culprits.append(other.pid)
            else:
                for hog in _hogs(len(cores) + 1 if name == "hogs" else 1, cores):
                    ends.callback(hog.wait)
                    ends.callback(hog.kill)
                    culprits.append(hog.pid)
        yield culprits
