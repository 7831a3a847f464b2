"""Who had what a job waited for, over all of a case.

What the agent itself took is never evidence, and never kept from the reader.
"""

from __future__ import annotations

from ingero.correlate.loss import Part
from ingero.detectors.detector import Case
from ingero.model.finding import Who

NAME = "ingero itself"
WORTH_SAYING = 0.01  # of what was lost


def ourselves(case: Case) -> list[Who]:
    """Cores that we had while the job waited for them, where waiting for one is what the case is about."""
    facts, tables = case.timeline.facts, case.timeline.tables
    if all(lost.bucket != "runqueue" for lost in case.causes):
        return []
    ns = sum(
        culprit.ns
        for (number, _), culprits in tables.culprits.items()
        if facts.at_ns(number + 1) > case.first_ns and facts.at_ns(number) < case.last_ns
        for culprit in culprits
        if culprit.pid == facts.agent_pid and culprit.victim_pid == case.job.pid
    )
    return [Who(facts.agent_pid or 0, NAME, ns, None)] if ns and ns >= WORTH_SAYING * case.ns else []


def culprits_of(case: Case) -> list[Part]:
    """Everybody with a part in it, most first."""
    sums: dict[int, Part] = {}
    for lost in case.causes:
        for part in lost.who:
            before = sums.get(part.pid)
            sums[part.pid] = Part(part.pid, part.comm, part.ns + (before.ns if before else 0))
    return sorted(sums.values(), key=lambda part: -part.ns)
