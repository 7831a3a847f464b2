"""What no finding may ever say, whatever was recorded: words and numbers that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ingero.correlate.account import Accounts
from ingero.correlate.activity import source_of
from ingero.correlate.timeline import Timeline
from ingero.detectors import BY_NAME
from ingero.model.finding import Finding, SourceLine
from ingero.model.report import Report
from ingero.model.window import BUCKET_NAMES
from ingero.store.reader import Reader
from ingero.store.sites import SiteReader

ROUNDED = 1e-4  # shares have four digits
ON_CORE = {"host_cpu", "cuda_cpu"}
# A thread that loses its core loses it where it computes; the interpreter's lock is another's who computes.
ALSO = {"runqueue": ON_CORE, "lock_wait": {"host_cpu"}}
WAITS = {"peer_wait", "lock_wait"}  # where the feeding thread stands while another one does something


def in_numbers(finding: Finding) -> Iterator[str]:
    """Gain, effect, causes and names against each other."""
    effect, gain = finding.effect, finding.gain
    if effect.usual_ns is not None and effect.now_ns is not None and effect.now_ns <= effect.usual_ns:
        yield f"lost time, and went from {effect.usual_ns} to {effect.now_ns} ns a step"
    if effect.excess_ns is not None:
        if gain is None or not 0 < gain.ns <= effect.excess_ns:
            yield f"wins {gain} of {effect.excess_ns}"
        elif gain.share > (effect.wall_share or 0) + ROUNDED:
            yield f"wins {gain.share} of {effect.wall_share} lost"
        whole = sum(cause.share for cause in finding.causes)
        if abs(whole - 1) > 0.01:
            yield f"causes sum to {whole}"
        buckets = [cause.bucket for cause in finding.causes[:-1]]
        if len(set(buckets)) < len(buckets):
            yield f"a cause twice: {buckets}"
    who = [one for cause in finding.causes for one in cause.who]
    if who and who[0].ns < max(one.ns for one in who):
        yield f"the first culprit is not the largest: {who}"
    others = {one.comm for one in who[1:]} - {one.comm for one in who[:1]} - {finding.victim.comm}
    if any(comm and comm in finding.title for comm in others):
        yield f"a lesser culprit in the title: {finding.title}"


def in_steps(report: Report) -> Iterator[str]:
    """A step's length, and how many there are in a second."""
    steps = {each.pid: each.step.now_ns for each in report.processes if each.step}
    for limit in report.bound:
        if limit.steps_per_s and limit.pid in steps:
            in_a_second = steps[limit.pid] * limit.steps_per_s / 1e9
            if not 0.95 <= in_a_second <= 1.05:
                yield f"{limit.pid}: {limit.steps_per_s} steps/s of {steps[limit.pid]} ns each"


def in_lines(db: Path, report: Report) -> Iterator[str]:
    """Lines that are not among the stacks of the time their finding is about."""
    with Reader(db) as reader:
        for node_id, node in reader.rows("SELECT id, name FROM node"):
            sites = SiteReader(reader.connection, int(node_id))
            calls = dict(reader.rows("SELECT id, kind FROM op"))
            for finding in report.findings:
                there = finding.source is None or not finding.causes or finding.node not in ("", node)
                if not there and finding.source not in _lines(sites, finding, calls):
                    yield f"{finding.kind}: {finding.source} is not in its stacks"


def _lines(sites: SiteReader, finding: Finding, calls: dict[int, str]) -> set[SourceLine | None]:
    buckets = {cause.bucket for cause in finding.causes if cause.ns}
    buckets |= {other for bucket in buckets for other in ALSO.get(bucket, ())}
    buckets |= WAITS if any(cause.via for cause in finding.causes) else set()
    numbers = [BUCKET_NAMES.index(name) for name in buckets]
    kinds = {kind for line in BY_NAME[finding.kind].lines for kind in line.kinds}
    span = finding.first_ns, finding.last_ns
    stacks = {
        stack
        for rows in (sites.samples(None, *span), sites.waits(None, *span))
        for stack, bucket in rows[["stack", "bucket"]].tolist()
        if bucket in numbers
    }
    made = sites.calls(None, *span)[["stack", "op"]].tolist()
    stacks |= {stack for stack, op in made if calls.get(op) in kinds}
    return {source_of(frames) for frames in sites.stacks(stacks).values()}


def of(db: Path, report: Report) -> list[str]:
    numbers = [f"{each.kind}: {said}" for each in report.findings for said in in_numbers(each)]
    numbers += in_steps(report)
    return [*numbers, *in_lines(db, report)]


def chains(db: Path) -> Iterator[tuple[int, int]]:
    """For each time at one pace of each job: what its account sums to, and what its thread's time does."""
    with Reader(db) as reader:
        for recording in reader.recordings():
            timeline = Timeline(reader.facts(recording, 0, recording.last_ns))
            for job in timeline.jobs:
                if job.pace is None:
                    continue
                spans = [stretch.spans for stretch in (job.pace.usual, *job.pace.slow)]
                rows = timeline.facts.over(spans).threads
                rows = rows[(rows["pid"] == job.pid) & (rows["tid"] == job.tid)]
                accounts = Accounts(timeline.facts, timeline.family, spans).of(job.pid, job.tid)
                for number, account in enumerate(accounts):
                    yield account.wall_ns, int(rows["ns"][rows["slice"] == number].sum())
