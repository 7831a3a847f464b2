"""CUDA out of memory: an allocation on the GPU failed.

Shows as   status 2 of an allocation, or of a call that needs memory.
Proof      the failed calls and the bytes they asked for.
Not this   the host's memory (oom-kill, memory-pressure).
Blind to   fragmentation inside a framework's own pool.
Severity   HIGH: the job stops, or frees its cache and goes on slowly.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Timeline
from ingero.detectors import status_codes
from ingero.detectors.cuda_error import by_process, failed
from ingero.detectors.detector import Detector, Line, State
from ingero.model.finding import Fix, Severity


def find(timeline: Timeline) -> Iterator[State]:
    mine = [
        e
        for e in timeline.facts.errors
        if e.code == status_codes.OUT_OF_MEMORY and not e.op.startswith("nccl")
    ]
    for pid, found in by_process(mine).items():
        comm = timeline.facts.comm(pid)
        count = max(each.count for each in found)  # runtime and driver both tell of it
        yield failed(
            found,
            comm,
            f"{comm}: {found[0].op} ran out of GPU memory {count} times",
            Severity.HIGH,
            (
                Fix(
                    "See who holds the card's memory.",
                    "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
                ),
                Fix("Smaller batches, or gradient accumulation."),
                Fix("Against fragmentation:", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
            ),
        )


DETECTOR = Detector(
    name="cuda-oom",
    title="The GPU is out of memory",
    needs=frozenset({"calls"}),
    find=find,
    severity="HIGH",
    lines=(Line("event", "fails"), Line("bytes", "allocates most", kinds=("alloc",))),
)
