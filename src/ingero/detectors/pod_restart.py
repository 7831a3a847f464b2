"""Pod restart: Kubernetes restarted, killed or evicted a pod of the job.

Shows as   progress that starts over, or a job that is gone.
Proof      the kubelet's or the container runtime's count of restarts, and the reason if it gives one.
Not this   pods that feed no GPU here; a process that ends by itself inside its container;
           a kill of one worker that the container survives (oom-kill).
Blind to   nodes where neither was asked, and what happened before the trace began.
Severity   CRITICAL when the pod was evicted, HIGH when it runs again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Detector, State
from ingero.model.facts import PodIncident
from ingero.model.finding import Fix, Proof, Severity

SHOWN = 3
Home = tuple[str | None, str | None]


def find(timeline: Timeline) -> Iterator[State]:
    """One finding per pod, about the last of its processes that fed a GPU."""
    jobs: dict[Home, Job] = {}
    for job in timeline.jobs:
        known = timeline.facts.processes.get(job.pid)
        if known and known.pod:
            jobs[known.namespace, known.pod] = job
    for home, job in jobs.items():
        happened = [each for each in timeline.facts.pods if (each.namespace, each.pod) == home]
        if happened:
            yield _state(job, sorted(happened, key=lambda each: each.at_ns))


def _state(job: Job, happened: list[PodIncident]) -> State:
    first, last = happened[0], happened[-1]
    name = f"{last.namespace}/{last.pod}"
    evicted = next((each for each in happened if each.event == "evicted"), None)
    times = f" {len(happened)} times" if len(happened) > 1 else ""
    said = f"evicted: {evicted.reason}" if evicted else f"restarted{times}: {_reason(last)}"
    return State(
        job.pid,
        job.comm,
        f"pod {name} was {said}",
        first.at_ns,
        last.at_ns,
        tuple(
            Proof(
                f"Kubernetes reports for {each.container or 'the pod'}: {_reason(each)}",
                f"SELECT * FROM pod_events WHERE namespace = {_quoted(each.namespace)}"
                f" AND pod = {_quoted(each.pod)} AND event <> 'seen'",
            )
            for each in happened[:SHOWN]
        ),
        Severity.CRITICAL if evicted else Severity.HIGH,
        fixes=_fixes(last),
        confidence=0.99,
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _reason(each: PodIncident) -> str:
    parts = [each.reason or "no reason given"]
    parts += [f"exit code {each.exit_code}"] if each.exit_code is not None else []
    parts += [f"restart number {each.restarts}"] if each.restarts else []
    return ", ".join(parts)


def _fixes(last: PodIncident) -> tuple[Fix, ...]:
    more = f" -c {shlex.quote(last.container)}" if last.container else ""
    advice = {
        "oom-kill": "Raise the container's memory limit, or use fewer workers or less prefetching.",
        "evicted": "Give the pod requests that match what it uses, and a priority class.",
    }.get(last.event, "See its last log lines, and keep checkpoints so that less work is lost.")
    return (
        Fix(advice),
        Fix(
            "See its log from before the restart.",
            f"kubectl -n {shlex.quote(last.namespace)} logs {shlex.quote(last.pod)}{more} --previous",
        ),
    )


DETECTOR = Detector(
    name="pod-restart",
    needs=frozenset({"pods"}),
    find=find,
    severity="CRITICAL when evicted, HIGH when restarted",
)
