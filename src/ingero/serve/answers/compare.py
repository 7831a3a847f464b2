"""Two recordings side by side: what got faster, what is gone, what was promised for it.

Each side is its whole last recording, or its end with --since. PIDs change between
runs, so findings are matched by kind and the victim's name, and time is that of the
process that feeds the GPU most on each side.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ingero.model.finding import Finding
from ingero.model.report import NotWatched, ProcessReport, Report, ReportWindow, StepTime
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.explain import get_report, has_counted_findings
from ingero.serve.answers.query import Range
from ingero.serve.answers.report_processes import feeds_gpu

GONE, STILL, NEW = "gone", "still-there", "new"


class Side(msgspec.Struct, frozen=True):
    """One of the two, and the process compared."""

    db: str
    node: str
    window: ReportWindow
    pid: int | None
    comm: str | None
    step: StepTime | None
    findings: int
    counted: bool  # whether --exit-code counts one of them
    lost: int
    not_watched: list[NotWatched]


class BucketChange(msgspec.Struct, frozen=True):
    """A bucket's time on both sides: its share, and its time within a step where steps are known."""

    bucket: str
    before_share: float | None
    after_share: float | None
    before_step_ns: int | None
    after_step_ns: int | None


class FindingChange(msgspec.Struct, frozen=True):
    """A finding before, after, or on both sides."""

    status: str  # gone, still-there, new
    kind: str
    before: Finding | None
    after: Finding | None
    promised_share: float | None  # what fixing it was to win, as BEFORE said


class GainCheck(msgspec.Struct, frozen=True):
    """Shares of BEFORE's step time; promised by the findings that are gone."""

    promised_share: float | None
    real_share: float | None


class Comparison(msgspec.Struct, frozen=True):
    """Contract of `explain --compare --json`."""

    before: Side
    after: Side
    buckets: list[BucketChange]
    findings: list[FindingChange]
    gain: GainCheck


def get_comparison(before: Path, after: Path, since: str | None = None) -> Comparison:
    """Both databases read and compared."""
    wanted = Range(since)
    return compare(str(before), get_report(before, wanted), str(after), get_report(after, wanted))


def compare(before_db: str, before: Report, after_db: str, after: Report) -> Comparison:
    """Two reports side by side."""
    first, second = _main(before), _main(after)
    changes = _findings(before.findings, after.findings)
    return Comparison(
        before=_side(before_db, before, first),
        after=_side(after_db, after, second),
        buckets=_buckets(first, second),
        findings=changes,
        gain=GainCheck(_promised(changes), _real(first, second)),
    )


def _main(report: Report) -> ProcessReport | None:
    """The process that feeds the GPU most: reports have it first."""
    return next((process for process in report.processes if feeds_gpu(process)), None)


def _side(db: str, report: Report, process: ProcessReport | None) -> Side:
    return Side(
        db=db,
        node=report.node,
        window=report.window,
        pid=process.pid if process else None,
        comm=process.comm if process else None,
        step=process.step if process else None,
        findings=len(report.findings),
        counted=has_counted_findings(report),
        lost=sum(loss.count for loss in report.losses),
        not_watched=report.not_watched,
    )


def _buckets(before: ProcessReport | None, after: ProcessReport | None) -> list[BucketChange]:
    names = {name for side in (before, after) if side for name, ns in side.time.items() if ns}
    known = [name for name in BUCKET_NAMES if name in names]
    order = known + sorted(names - set(known))
    return [
        BucketChange(
            name, _share(before, name), _share(after, name), _in_step(before, name), _in_step(after, name)
        )
        for name in order
    ]


def _share(process: ProcessReport | None, bucket: str) -> float | None:
    if process is None or not process.threads_ns:
        return None
    return process.time.get(bucket, 0) / process.threads_ns


def _in_step(process: ProcessReport | None, bucket: str) -> int | None:
    """Of the feeding threads' time: with one such thread, the buckets sum to the mean step."""
    if process is None or process.step is None or process.step.count <= 0:
        return None
    return round(process.time.get(bucket, 0) / process.step.count)


def _findings(before: list[Finding], after: list[Finding]) -> list[FindingChange]:
    left = list(after)
    found: dict[int, Finding] = {}
    for alike in (_same_on_node, _same):  # runs may be on other nodes; of several, the same node is meant
        for number, old in enumerate(before):
            new = next((each for each in left if alike(old, each)), None) if number not in found else None
            if new is not None:
                left.remove(new)
                found[number] = new
    changes = []
    for number, old in enumerate(before):
        promised = old.gain.share if old.gain else None
        status = STILL if number in found else GONE
        changes.append(FindingChange(status, old.kind, old, found.get(number), promised))
    return changes + [FindingChange(NEW, each.kind, None, each, None) for each in left]


def _same_on_node(one: Finding, other: Finding) -> bool:
    return one.node == other.node and _same(one, other)


def _same(one: Finding, other: Finding) -> bool:
    return (one.kind, one.victim.comm) == (other.kind, other.victim.comm)


def _promised(changes: list[FindingChange]) -> float | None:
    """Gains add up: each finding claims its own part of the time."""
    gone = [change.promised_share for change in changes if change.status == GONE]
    known = [share for share in gone if share is not None]
    return min(sum(known), 1.0) if known else None


def _real(before: ProcessReport | None, after: ProcessReport | None) -> float | None:
    if before is None or after is None or before.step is None or after.step is None:
        return None
    return 1 - after.step.now_ns / before.step.now_ns if before.step.now_ns > 0 else None
