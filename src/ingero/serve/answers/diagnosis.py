"""The diagnosis of a stretch of time: each recording in it is looked at by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import diagnose, in_order
from ingero.detectors.judge import usual_step_ns
from ingero.detectors.lasting import weigh
from ingero.model.facts import Facts
from ingero.model.finding import STATES, Finding, Unexplained
from ingero.model.report import Bound, NotWatched, StepTime
from ingero.serve.answers.report_processes import Extras
from ingero.serve.answers.window import TimeRange
from ingero.store.findings import told
from ingero.store.reader import Reader, RecordingInfo


@dataclass(slots=True)
class Diagnosed:
    """What the detectors say, and what they learnt about the jobs on the way."""

    findings: list[Finding] = field(default_factory=list)
    unexplained: list[Unexplained] = field(default_factory=list)
    not_watched: list[NotWatched] = field(default_factory=list)
    extras: Extras = field(default_factory=Extras)
    bound: list[Bound] = field(default_factory=list)
    timelines: list[Timeline] = field(default_factory=list)  # one for each recording


def recordings_within(reader: Reader, when: TimeRange) -> list[RecordingInfo]:
    return [
        each for each in reader.recordings() if each.started_ns < when.to_ns and each.last_ns >= when.from_ns
    ]


def diagnosed(reader: Reader, when: TimeRange) -> Diagnosed:
    found = Diagnosed()
    unwatched: dict[str, NotWatched] = {}
    for recording in recordings_within(reader, when):
        timeline = Timeline(reader.facts(recording, when.from_ns, when.to_ns))
        found.timelines.append(timeline)
        one = diagnose(timeline)
        found.findings.extend(with_stored_line(reader, recording, each) for each in one.findings)
        found.findings.extend(_lasting(reader, recording, when, timeline.facts, one.findings))
        found.unexplained.extend(one.unexplained)
        found.bound.extend(one.bound)
        unwatched.update((each.what, each) for each in one.not_watched)
        for job in timeline.jobs:
            _learn(found.extras, job, one.findings)
    found.findings = in_order(found.findings)
    found.not_watched = list(unwatched.values())
    return found


def _lasting(
    reader: Reader, recording: RecordingInfo, when: TimeRange, facts: Facts, found: list[Finding]
) -> list[Finding]:
    """States that were told while it was recorded, and cannot be found again in what is asked about."""
    rows = told(reader.connection, recording.node_id, recording.id, STATES, (when.from_ns, when.to_ns))
    before = [each for row in rows if (each := _decoded(*row)) is not None]
    from_ns = max(facts.from_ns, facts.complete_from_ns or 0)
    return weigh(before, found, from_ns, None if when.to_ns >= recording.last_ns else when.to_ns).kept


def _decoded(text: str, first_ns: int, last_ns: int) -> Finding | None:
    try:
        finding = msgspec.json.decode(text, type=Finding)
    except (msgspec.MsgspecError, TypeError):  # the file may come from anybody
        return None
    return msgspec.structs.replace(finding, first_ns=first_ns, last_ns=last_ns)


def with_stored_line(reader: Reader, recording: RecordingInfo, finding: Finding) -> Finding:
    """Detail goes first when a recording grows too large: the line told while it was there stays true."""
    if finding.source is not None or finding.stack:
        return finding
    rows = reader.rows(
        "SELECT json FROM finding WHERE node_id = ? AND key = ? AND source_file IS NOT NULL",
        (recording.node_id, f"{recording.id}:{finding.key}"),
    )
    try:
        told = msgspec.json.decode(rows[0][0], type=Finding) if rows else finding
    except (msgspec.MsgspecError, TypeError):  # the file may come from anybody
        return finding
    return msgspec.structs.replace(finding, source=told.source, stack=told.stack)


def _learn(extras: Extras, job: Job, findings: list[Finding]) -> None:
    extras.gpu_idle_ns[job.pid] = sum(each.gap_ns for each in job.slices)
    settled = [each.number for each in job.slices if not each.cold and not each.ending]
    now = job.step_ns(settled)
    if job.loop is None or now is None:
        return
    mine = [each for each in findings if each.victim.pid == job.pid]
    # Where something is wrong all the time, what is usual was never seen.
    usual = mine[0].effect.usual_ns if mine else usual_step_ns(job, set())
    if job.pace is not None:  # what it is now is no mean of before and after
        usual, now = job.pace.usual.step_ns, job.pace.now.step_ns or now
    extras.steps[job.pid] = StepTime(
        job.loop.name, sum(job.steps(number) for number in settled), int(usual or now), int(now)
    )
