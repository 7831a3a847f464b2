"""The diagnosis of a stretch of time, recording by recording, and its findings made ready: fixes for now,
and the steps they touch.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import diagnose, in_order
from ingero.detectors.commands import SEE_WHO
from ingero.detectors.judge import usual_step_ns
from ingero.detectors.lasting import weigh
from ingero.errors import UsageError
from ingero.model.facts import Facts
from ingero.model.finding import STATES, Finding, Fix, LabelRange, Unexplained
from ingero.model.report import Bound, NotWatched, StepTime
from ingero.serve.answers.labels import Held, Label, Span, held, keys_said
from ingero.serve.answers.report_processes import Extras
from ingero.serve.answers.window import TimeRange
from ingero.store.findings import told
from ingero.store.processes import boot_id
from ingero.store.reader import Reader, RecordingInfo

# The diagnosis of a stretch of time: each recording in it is looked at by itself.


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


# Fixes for now: a command about processes that are gone becomes the one that finds them.
#
# Only of what this boot of this machine recorded is it known; of others the command stays as it is.


STARTED = 19  # field of /proc/PID/stat, counted behind the name


def for_now(reader: Reader, findings: list[Finding]) -> list[Finding]:
    """Each with the commands that can be run now."""
    named = {pid for finding in findings for fix in finding.fix for pid in fix.pids}
    gone = _gone(reader, named) if named else set()
    if not gone:
        return findings
    return [msgspec.structs.replace(each, fix=[_of(fix, gone) for fix in each.fix]) for each in findings]


def _of(fix: Fix, gone: set[int]) -> Fix:
    ended = [pid for pid in fix.pids if pid in gone]
    if not ended:
        return fix
    who = f"Process {ended[0]} has" if len(ended) == 1 else f"{len(ended)} of these processes have"
    then = {None: "", SEE_WHO: " See what uses the cores now:"}.get(
        fix.if_ended, " This command finds them by name:"
    )
    return msgspec.structs.replace(fix, text=f"{fix.text} {who} ended.{then}", command=fix.if_ended, pids=[])


def _gone(reader: Reader, pids: Iterable[int]) -> set[int]:
    here, gone = boot_id(), set()
    recorded_here = here and reader.rows("SELECT 1 FROM process WHERE boot_id = ? LIMIT 1", (here,))
    for pid in pids:
        rows = reader.rows(
            "SELECT boot_id, start_tick FROM process WHERE pid = ? ORDER BY id DESC LIMIT 1", (pid,)
        )
        if not rows and recorded_here and _started(pid) is None:  # of a bystander only sums are kept
            gone.add(pid)
        if rows and here and rows[0][0] == here and rows[0][1] is not None and _started(pid) != rows[0][1]:
            gone.add(pid)
    return gone


def _started(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[STARTED])
    except (OSError, ValueError, IndexError):
        return None


# Which steps a finding touches, where the job said its steps.


MOST_KEYS = 6


def with_labels(reader: Reader, when: TimeRange, findings: list[Finding]) -> list[Finding]:
    """The same findings, each with what its victim said meanwhile."""
    if not findings or not (keys := keys_said(reader)[:MOST_KEYS]):
        return findings
    said: dict[str, Held] = {}
    for key in keys:
        with suppress(UsageError):  # not in that time
            said[key] = held(reader, when, Label(key))
    rows = reader.rows("SELECT id, pid FROM process")
    numbers: dict[int, list[int]] = {}
    for number, pid in rows:
        numbers.setdefault(pid, []).append(number)
    return [
        msgspec.structs.replace(each, labels=_ranges(each, said, numbers.get(each.victim.pid, [])))
        for each in findings
    ]


def _ranges(finding: Finding, said: dict[str, Held], processes: list[int]) -> list[LabelRange]:
    episodes = finding.episodes or [(finding.first_ns, finding.last_ns)]
    found = []
    for key, spans in said.items():
        mine = (span for process in processes for span in spans.get(process, []))
        if values := _values(mine, episodes):
            found.append(LabelRange(key, values[0], values[-1], len(values)))
    return found


def _values(spans: Iterable[Span], episodes: list[tuple[int, int]]) -> list[str]:
    """Different ones in order: of number where they are numbers, else of time."""
    touched = [
        span
        for span in spans
        if any(span.start_ns < end_ns and span.end_ns > start_ns for start_ns, end_ns in episodes)
    ]
    values = list(dict.fromkeys(span.value for span in sorted(touched)))
    return sorted(values, key=int) if all(map(_is_number, values)) else values


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 20
