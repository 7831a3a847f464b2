"""OOM kill: the kernel killed a process of the job for lack of memory.

Shows as   a worker or the job itself is gone.
Proof      the kill.
Not this   kills of processes that have nothing to do with a GPU job; CUDA's own
           memory (cuda-oom).
Blind to   kills by a user-space daemon, which are plain signals.
Severity   CRITICAL.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Detector, State
from ingero.model.facts import Incident
from ingero.model.finding import Fix, Proof, Severity


def find(timeline: Timeline) -> Iterator[State]:
    for job in timeline.jobs:
        killed = [
            each
            for each in sorted(timeline.facts.ooms, key=lambda one: one.at_ns)
            if each.pid is not None and timeline.family.works_for(each.pid, job.pid)
        ]
        if killed:
            yield _state(job, killed)


def _state(job: Job, killed: list[Incident]) -> State:
    first = killed[0]
    worker = f" (started by {job.comm}, pid {job.pid})" if first.pid != job.pid else ""
    again = f", and {len(killed) - 1} more" if len(killed) > 1 else ""
    return State(
        first.pid or 0,
        first.comm or "?",
        f"the kernel killed {first.comm} (pid {first.pid}){worker} for lack of memory{again}",
        first.at_ns,
        killed[-1].at_ns,
        tuple(
            Proof(f"the kernel chose {each.comm} (pid {each.pid}) as victim", None, [each.event_id])
            for each in killed[:3]
        ),
        Severity.CRITICAL,
        fixes=(
            Fix("See how much it had and what the limit is.", "sudo dmesg | grep -i -A3 'killed process'"),
            Fix("Raise the memory limit, or use fewer workers or less prefetching."),
        ),
    )


DETECTOR = Detector(
    name="oom-kill",
    needs=frozenset({"memory"}),
    find=find,
    severity="CRITICAL",
)
