"""Driver and runtime do not fit: the driver is too old for the program, or the code for the GPU.

Shows as   status 35, 209, 222, 223, 803 or 804.
Proof      the failed calls.
Not this   other errors (cuda-error); a library that tries code for another GPU first:
           the process launches.
Blind to   libraries that check the version and stop before calling.
Severity   CRITICAL: nothing runs on the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import cuda_error
from ingero.detectors.cuda_error import by_process, failed
from ingero.detectors.detector import Detector, LineChoice, State
from ingero.model.finding import Fix, Severity


def _launches(job: Job) -> bool:
    return any(job.spent(each.number, "launch", "graph").count for each in job.slices)


def find(timeline: Timeline) -> Iterator[State]:
    for pid, found in by_process([e for e in timeline.facts.errors if e.code in cuda_error.MISMATCH]).items():
        if any(job.pid == pid and _launches(job) for job in timeline.jobs):
            continue  # a library tried code for another GPU first, and then found its own
        comm = timeline.facts.comm(pid)
        yield failed(
            found,
            comm,
            f"{comm}: {cuda_error.name_of(found[0].code)} ({found[0].op} returned {found[0].code})",
            Severity.CRITICAL,
            (
                Fix("See which CUDA version the driver supports.", "nvidia-smi"),
                Fix("Update the driver, or install a build for that version."),
            ),
        )


DETECTOR = Detector(
    name="version-mismatch",
    needs=frozenset({"calls"}),
    find=find,
    severity="CRITICAL",
    lines=(LineChoice("event", "fails"),),
)
