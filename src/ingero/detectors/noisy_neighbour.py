"""Noisy neighbour: a process of another container takes the cores this job needs.

Shows as   the same as cpu-contention, but the culprit lives in another container or pod.
Proof      run-queue time of the feeding thread, and the other container's tasks on its core.
Not this   the part taken by processes of the same container, or of none (cpu-contention).
Blind to   what the neighbour does to caches and memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Timeline
from ingero.detectors import proofs
from ingero.detectors.detector import LOST_CORE, Case, Detector, Evidence
from ingero.model.facts import ProcessFact
from ingero.model.finding import Fix, Proof
from ingero.units import format_cpus

COMMANDS = {"podman": "podman", "containerd": "crictl", "cri-o": "crictl"}  # others: docker


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job, each, found in timeline.lost("runqueue"):
        causes = tuple(lost for lost in found if lost.whose == "neighbours")
        if causes:
            yield Evidence(job, each, sum(lost.ns for lost in causes), causes)


def _neighbour(case: Case) -> ProcessFact | None:
    return case.timeline.facts.processes.get(case.who[0].pid) if case.who else None


def _home(known: ProcessFact | None) -> str:
    """As in pod team-b/stress, or container 3f2a9c41d7be; empty: in none."""
    if known is None or known.container is None:
        return ""
    return f"pod {known.container}" if known.pod else f"container {known.container[:12]}"


def headline(case: Case) -> str:
    mine = _home(case.timeline.facts.processes.get(case.job.pid))
    return (
        f"{case.all_alike()} in {_home(_neighbour(case))} takes the CPU that {case.job.comm}"
        f"{f' in {mine}' if mine else ''} needs to feed the GPU"
    )


def prove(case: Case) -> list[Proof]:
    main = case.main
    more = proofs.culprits(case, main.tid) if main else None
    return [*proofs.waits(case), *([more] if more else [])]


def advise(case: Case) -> list[Fix]:
    known = _neighbour(case)
    name = (known.container or "")[:12] if known and not known.pod else ""  # a pod's are the kubelet's
    tool = COMMANDS.get(known.runtime or "", "docker") if known else ""
    machine, cpus = case.machine, case.cpus
    others = sorted(set(machine) - set(cpus)) or cpus[-1:]
    return [
        Fix(
            f"Limit the neighbour to cores the job does not use (the machine has {len(machine)}).",
            f"{tool} update --cpuset-cpus {format_cpus(others)} {name}" if name else None,
        ),
        Fix("On Kubernetes give the job whole CPUs: requests = limits, cpuManagerPolicy: static."),
    ]


DETECTOR = Detector(
    name="noisy-neighbour",
    needs=frozenset({"calls", "sched", "culprits"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    lines=LOST_CORE,
)
