"""CPU throttling: the job's cgroup has used up its CPU quota, and its threads stand still.

Shows as   the feeding thread could run, but is stopped until the next period.
Proof      time in which the thread's cgroup was throttled, as the scheduler marks it.
Not this   other tasks on the core (cpu-contention): a quota has no culprit.
Blind to   a quota set outside, by a hypervisor.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Timeline
from ingero.detectors import proofs
from ingero.detectors.commands import look
from ingero.detectors.detector import LOST_CORE, Case, Detector, Evidence
from ingero.model.finding import Fix
from ingero.units import format_rounded


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job, each, found in timeline.lost("runqueue"):
        causes = tuple(lost for lost in found if lost.whose == "quota")
        if causes:
            yield Evidence(job, each, sum(lost.ns for lost in causes), causes)


def headline(case: Case) -> str:
    share = format_rounded(case.ns / case.wall_ns)
    return f"{case.job.comm} is stopped by its CPU quota for {share} of the time"


def advise(case: Case) -> list[Fix]:
    return [
        look(
            case.timeline.facts,
            case.job.pid,
            "Raise or remove the CPU limit of the job's cgroup (cpu.max, or cpu.cfs_quota_us).",
            "cat /proc/{}/cgroup",
        ),
        Fix("On Kubernetes: give pods that feed a GPU a CPU request, but no CPU limit."),
    ]


DETECTOR = Detector(
    name="cpu-throttled",
    needs=frozenset({"calls", "sched", "culprits"}),
    find=find,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
    lines=LOST_CORE,
)
