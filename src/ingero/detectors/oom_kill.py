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

from ingero.correlate.timeline import Timeline
from ingero.detectors.detector import Detector, State
from ingero.model.finding import Fix, Proof, Severity


def find(timeline: Timeline) -> Iterator[State]:
    jobs = {job.pid: job for job in timeline.jobs}
    for each in timeline.facts.ooms:
        family = [pid for pid in jobs if each.pid and timeline.family.works_for(each.pid, pid)]
        if not family or each.pid is None:
            continue
        job = jobs[family[0]]
        worker = f" (started by {job.comm}, pid {job.pid})" if each.pid != job.pid else ""
        yield State(
            each.pid,
            each.comm or "?",
            f"the kernel killed {each.comm} (pid {each.pid}){worker} for lack of memory",
            each.at_ns,
            each.at_ns,
            (Proof("the kernel chose it as victim", None, [each.event_id]),),
            Severity.CRITICAL,
            fixes=(
                Fix("See how much it had and what the limit is.", "dmesg | grep -i -A3 'killed process'"),
                Fix("Raise the memory limit, or use fewer workers or smaller prefetch."),
            ),
        )


DETECTOR = Detector(
    name="oom-kill",
    title="A process of the job was killed for memory",
    needs=frozenset({"memory"}),
    find=find,
    severity="CRITICAL",
)
