"""Proof that several detectors give alike: sums of the tables users can query themselves."""

from __future__ import annotations

from ingero.correlate.loss import Lost
from ingero.detectors.detector import Case
from ingero.model.finding import Proof
from ingero.model.window import BUCKET_NAMES
from ingero.model.words import BUCKETS
from ingero.units import format_ns


def thread_time(case: Case, lost: Lost) -> Proof:
    """How much of its time a thread spent in a bucket."""
    at = BUCKET_NAMES.index(lost.bucket)
    threads = case.timeline.facts.threads
    mine = threads[(threads["tid"] == lost.tid) & case.covers(threads["slice"])]
    total, spent = int(mine["ns"].sum()), int(mine["ns"][:, at].sum())
    share = spent / total if total else 0.0
    return Proof(
        f"thread {lost.tid} ({lost.comm}) {BUCKETS[lost.bucket].spent} {format_ns(spent)}"
        f" of {format_ns(total)} ({share:.0%})",
        f"SELECT SUM(ns) FROM thread_time WHERE tid = {lost.tid} AND bucket = '{lost.bucket}'"
        f" AND {case.span_sql}",
        case.timeline.facts.longest(lost.tid, lost.bucket, case.first_ns, case.last_ns),
    )


def culprits(case: Case, tid: int) -> Proof | None:
    """Who ran on the core meanwhile."""
    if not case.who:
        return None
    names = ", ".join(f"{part.comm} (pid {part.pid}) {format_ns(part.ns)}" for part in case.who[:3])
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
