"""What several detectors prove alike: sums of the tables users can query themselves, and who had what was
waited for.
"""

from __future__ import annotations

from ingero.correlate.loss import LossPart, Lost
from ingero.detectors.detector import Case
from ingero.model.finding import Proof, Who
from ingero.model.window import BUCKET_NAMES
from ingero.model.words import BUCKETS
from ingero.units import format_ns, format_rounded

WORTH_A_NAME = 0.01  # of what the one with most had

# Proof that several detectors give alike: sums of the tables users can query themselves.


def thread_time(case: Case, lost: Lost) -> Proof:
    """How much of its time a thread spent in a bucket."""
    at = BUCKET_NAMES.index(lost.bucket)
    threads = case.timeline.facts.threads
    mine = threads[(threads["tid"] == lost.tid) & case.covers(threads["slice"])]
    total, spent = int(mine["ns"].sum()), int(mine["ns"][:, at].sum())
    share = spent / total if total else 0.0
    return Proof(
        f"thread {lost.tid} ({lost.comm}) {BUCKETS[lost.bucket].spent} {format_ns(spent)}"
        f" of {format_ns(total)} ({format_rounded(share)})",
        f"SELECT SUM(ns) FROM thread_time WHERE tid = {lost.tid} AND bucket = '{lost.bucket}'"
        f" AND {case.span_sql}",
        case.timeline.facts.longest(lost.tid, lost.bucket, case.first_ns, case.last_ns),
    )


def culprits(case: Case, tid: int) -> Proof | None:
    """Who ran on the core meanwhile."""
    if not case.who:
        return None
    least = max(part.ns for part in case.who) * WORTH_A_NAME
    named = [part for part in case.who[:3] if part.ns >= least]
    names = ", ".join(f"{part.comm} (pid {part.pid}) {format_ns(part.ns)}" for part in named)
    waited = sorted({lost.tid for lost in case.causes if lost.who}) or [tid]
    where = "that core" if len(waited) == 1 else f"the cores {len(waited)} threads waited for"
    return Proof(
        f"on {where} meanwhile: {names}",
        f"SELECT pid, comm, SUM(ns) AS ns FROM culprits WHERE victim_tid IN ({', '.join(map(str, waited))})"
        f" AND {case.span_sql} GROUP BY pid ORDER BY ns DESC",
    )


def chain(lost: Lost, victim: str) -> Proof | None:
    """The way from the victim to the cause."""
    if not lost.via:
        return None
    way = " waits for ".join((victim, *lost.via))
    return Proof(
        f"{way}", f"SELECT waker, waker_pid, SUM(ns) FROM wakers WHERE tid = {lost.tid} GROUP BY 1, 2"
    )


def waits(case: Case) -> list[Proof]:
    """The usual proof of a finding about waiting: where, how long, along which way."""
    main = case.main
    if main is None:
        return []
    return [each for each in (thread_time(case, main), chain(main, case.job.comm)) if each]


# Who had what a job waited for, over all of a case.
#
# What the agent itself took is never evidence, and never kept from the reader.


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


def culprits_of(case: Case) -> list[LossPart]:
    """Everybody with a part in it, most first."""
    sums: dict[int, LossPart] = {}
    for lost in case.causes:
        for part in lost.who:
            before = sums.get(part.pid)
            sums[part.pid] = LossPart(part.pid, part.comm, part.ns + (before.ns if before else 0))
    return sorted(sums.values(), key=lambda part: -part.ns)
