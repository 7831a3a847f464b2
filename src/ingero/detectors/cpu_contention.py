"""CPU contention: the thread that feeds the GPU waits for a core that somebody else has.

Shows as   steps longer than usual; in the extra time the thread could run and had no core.
Proof      run-queue time of the feeding thread, or of the thread it waits for, that the
           GPU's own work did not hide, and the tasks that ran on that core meanwhile.
Not this   a thread that blocked by itself (data-starvation, disk-wait), one that lost its
           core inside a wait for the GPU that would have lasted as long anyway, a CPU
           quota (cpu-throttled), another container (noisy-neighbour).
Blind to   time that the host takes from a virtual machine; how long the GPU still worked
           while a spinning thread was off its core, which is estimated from its other waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import LossPart, Lost
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import commands, proofs
from ingero.detectors.detector import LOST_CORE, Case, Detector, Evidence
from ingero.model.finding import Fix, Proof
from ingero.units import format_cpus

KTHREADD = 2  # parent of all kernel threads
WORTH_MOVING = 0.1  # of what the worst one took: a kernel worker's millisecond is nobody's fault


def _counts(lost: Lost, job: Job) -> bool:
    if lost.whose == "own":  # workers that feed us are the input pipeline's matter
        return all(part.pid == job.pid for part in lost.who)
    return lost.whose in ("others", "unknown")


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job, each, found in timeline.lost("runqueue"):
        causes = tuple(lost for lost in found if _counts(lost, job))
        if causes:
            yield Evidence(job, each, sum(lost.ns for lost in causes), causes)


def headline(case: Case) -> str:
    if not case.who:
        return f"{case.job.comm} waits for a core"
    if case.who[0].pid == case.job.pid:
        return f"{case.job.comm} has more busy threads than it has cores"
    return f"{case.all_alike()} takes the CPU that {case.job.comm} needs to feed the GPU"


def prove(case: Case) -> list[Proof]:
    main = case.main
    more = proofs.culprits(case, main.tid) if main else None
    return [*proofs.waits(case), *([more] if more else [])]


def _movable(case: Case) -> list[LossPart]:
    """Who can be kept off the cores: not the kernel's own threads, nor the job."""
    processes = case.timeline.facts.processes
    most = max((part.ns for part in case.who), default=0)
    return [
        part
        for part in case.who
        if part.pid != case.job.pid and part.ns >= WORTH_MOVING * most
        if part.pid not in processes or processes[part.pid].parent_pid != KTHREADD
    ]


def _for_all(case: Case, others: list[LossPart], text: str, command: str) -> Fix:
    """All of them: half of a crowd moved away leaves the other half."""
    return commands.of_all(case.timeline.facts, others, case.job.comm, text, command)


def _own_cores(case: Case, cores: str) -> Fix:
    facts, pid = case.timeline.facts, case.job.pid
    start = commands.start_again(facts, pid, f"taskset -c {cores}")
    if commands.ended(facts, pid):
        return Fix(f"Start the job on its own cores: put `taskset -c {cores}` before its command.", start)
    return Fix("Give the job its own cores.", f"taskset -acp {cores} {pid}", pids=[pid], if_ended=start)


def advise(case: Case) -> list[Fix]:
    others, (*own, last) = _movable(case), case.cpus
    elsewhere = sorted(set(case.machine) - set(case.cpus))
    fixes = []
    if others and elsewhere:
        names = ", ".join(sorted({part.comm for part in others[:3]}))
        apart = f"Move {names} to other cores: the job keeps {format_cpus(case.cpus)} for itself."
        fixes.append(_for_all(case, others, apart, f"taskset -acp {format_cpus(elsewhere)} {{}}"))
    elif others and own:
        names = ", ".join(sorted({part.comm for part in others[:3]}))
        apart = f"Keep {names} off the job's cores: one core for them, the rest for the job."
        fixes.append(_for_all(case, others, apart, f"taskset -acp {last} {{}}"))
        fixes.append(_own_cores(case, format_cpus(own)))
    if others:
        them = "it" if len(others) == 1 else "them"
        text = f"Or lower the priority: let {them} run only when nobody else needs the core."
        fixes.append(_for_all(case, others, text, "renice -n 19 -p {}"))
    if not fixes:
        fixes.append(
            Fix(
                f"Use fewer threads than the {case.cores} cores: set this, then start the job again.",
                f"export OMP_NUM_THREADS={max(1, len(own))}",
            )
        )
    return fixes


DETECTOR = Detector(
    name="cpu-contention",
    needs=frozenset({"calls", "sched", "culprits"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    lines=LOST_CORE,
)
