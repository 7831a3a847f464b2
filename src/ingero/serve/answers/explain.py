"""What `ingero explain` answers: the diagnosis of a recording, or of a part of it.

Opens the database, asks and closes it. Findings come from the detectors; everything
else is what the recording holds, so that "no problem found" has its evidence.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Set
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from ingero.correlate.timeline import Timeline
from ingero.detectors import in_order
from ingero.errors import StoreError, TargetError, UsageError
from ingero.model.finding import Finding, Severity, Unexplained
from ingero.model.layout import Bucket
from ingero.model.report import (
    GovernorAct,
    LabelReport,
    Loss,
    NotWatched,
    OverheadReport,
    ProcessReport,
    Report,
    ReportWindow,
    SystemContext,
)
from ingero.serve.answers.diagnosis import Diagnosed, diagnosed, for_now, recordings_within, with_labels
from ingero.serve.answers.gpu_series import gpus_within
from ingero.serve.answers.label_time import label_report
from ingero.serve.answers.labels import NO_LABELS, Labels, LabelTimes, held_by_all, label_times
from ingero.serve.answers.missing import late_calls, late_processes, losses_within, untimed_calls
from ingero.serve.answers.operations import recorded_ns
from ingero.serve.answers.query import Range
from ingero.serve.answers.report_processes import Extras, feeds_gpu, process_reports
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.several_nodes import NOT_TOGETHER, across_nodes, combined
from ingero.serve.answers.whose import EVERYBODY, Whose, require_pids, require_whose
from ingero.serve.answers.window import TimeRange, ended, local_time, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader, RecordingInfo
from ingero.store.schema import BUCKET_COLUMNS
from ingero.units import SECOND, clean, format_ns, format_share

F = TypeVar("F", Finding, Unexplained)
COUNTED = (Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM)  # what --exit-code counts
_PSI = ("cpu_some", "memory_some", "io_some")
_SYSTEM = """
    SELECT AVG(cpu_share), AVG(memory_share), AVG(psi_cpu_some), AVG(psi_memory_some), AVG(psi_io_some)
    FROM system_sample WHERE at_ns >= ? AND at_ns < ?"""
_LAST_SAMPLE = """
    SELECT load1, cores, swap_bytes FROM system_sample WHERE at_ns >= ? AND at_ns < ?
    ORDER BY at_ns DESC LIMIT 1"""
_FED = (
    f"SELECT SUM({' + '.join(BUCKET_COLUMNS)}) FROM thread_second"
    " WHERE feeder AND start_ns >= ? AND start_ns < ?"
)
_OVERHEAD = (
    "SELECT SUM(share * (end_ns - start_ns)) / SUM(end_ns - start_ns) FROM overhead_second"
    " WHERE start_ns >= ? AND start_ns < ?"
)
_WATCHED = _OVERHEAD.replace("share *", "watched_share *")
_ACTIONS = (
    "SELECT at_ns, what, before, after, why, watched_share FROM governor_action"
    " WHERE at_ns >= ? AND at_ns < ? ORDER BY at_ns LIMIT 1000"
)
_COST = "SELECT ns_per_hit, budget FROM recording WHERE started_ns < ? ORDER BY started_ns DESC LIMIT 1"
_HITS = (
    "SELECT SUM(hits), SUM(end_ns - start_ns), SUM(agent_cpu_ns) FROM window"
    " WHERE start_ns >= ? AND start_ns < ?"
)
_TAKEN = f"""
    SELECT SUM(c.ns) FROM culprit c JOIN recording r ON r.node_id = c.node_id AND r.agent_pid = c.pid
    WHERE c.start_ns >= ?1 AND c.start_ns < ?2 AND NOT c.throttled AND c.bucket = {int(Bucket.RUNQUEUE)}
        AND c.start_ns >= r.started_ns AND c.start_ns <= r.last_ns
        AND (c.victim_pid, c.victim_tid) IN (
            SELECT pid, tid FROM thread_second WHERE feeder AND start_ns >= ?1 AND start_ns < ?2)"""
_SWITCHES = """
    SELECT SUM(t.switches), SUM(t.ns), SUM(t.end_ns - t.start_ns), SUM((t.end_ns - t.start_ns) * r.cores)
    FROM switch_second t JOIN recording r ON r.id = t.recording_id
    WHERE t.start_ns >= ? AND t.start_ns < ?"""


def get_report(
    db: Path | None,
    wanted: Range,
    pid: int | None = None,
    now_ns: int | None = None,
    node: str | None = None,
    labels: Labels = NO_LABELS,
    whose: Whose = EVERYBODY,
) -> Report:
    """The diagnosis of a recording; of one process, tenant, node or the time of a label where asked for.

    In a merged database each node is looked at by itself, over its own last recording
    unless a range is given; then all of them together.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    path = db or last_path()
    with Reader(path, node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end, now_ns)
        nodes = reader.nodes()
        require_whose(reader, whose)
        asked = AskedFor(pid, whose, labels)
        if len(nodes) < 2:
            return _report(reader, when, asked)
        recorded = recorded_ns(reader, when)
        with ExitStack() as readers:
            seen: dict[str, list[Timeline]] = {}
            reports = _by_node(path, nodes, None if wanted == Range() else when, now_ns, asked, seen, readers)
            everybody = pid is None and not whose
            if not recorded or not reports:
                raise _nothing_recorded(reader, when) if everybody or not recorded else _not_seen(pid, [])
            with reader.trouble_told(), sense_made_of(reader):
                local = {each.node: each.findings for each in reports}
                across = across_nodes(reader, seen, local) if everybody else NOT_TOGETHER
    return combined(reports, recorded, across)


class AskedFor(NamedTuple):
    """Of whom, and for which labels."""

    pid: int | None
    whose: Whose
    labels: Labels

    def pids(self, reader: Reader) -> frozenset[int] | None:
        """None: everybody's. Raises where this node has nobody of theirs."""
        if self.whose:
            found = require_pids(reader, self.whose)
            return found if self.pid is None else found & {self.pid}
        return None if self.pid is None else frozenset({self.pid})


def _by_node(
    path: Path,
    nodes: list[str],
    when: TimeRange | None,
    now_ns: int,
    asked: AskedFor,
    seen: dict[str, list[Timeline]],
    readers: ExitStack,
) -> list[Report]:
    """`seen` gets each node's timelines; they ask the `readers`, which stay open."""
    labels = asked.labels
    found = []
    unsaid: list[UsageError] = []
    for name in nodes:
        reader = readers.enter_context(Reader(path, name))
        timelines = seen.setdefault(name, [])
        mine = when or time_range(reader, now_ns=now_ns)
        if recorded_ns(reader, mine):
            try:
                with suppress(TargetError):  # another node has the process
                    found.append(_report(reader, mine, asked, timelines))
            except UsageError as error:
                if labels == NO_LABELS:
                    raise
                unsaid.append(error)  # jobs of another node may have said it
                if not labels.wanted:
                    found.append(_report(reader, mine, asked._replace(labels=NO_LABELS), timelines))
    if unsaid and not any(labels.wanted or each.by is not None for each in found):
        raise unsaid[0]
    return found


def _report(
    reader: Reader, when: TimeRange, asked: AskedFor, timelines: list[Timeline] | None = None
) -> Report:
    labels, pids = asked.labels, asked.pids(reader)
    held: LabelTimes | None = None
    if labels.wanted:
        with reader.trouble_told(), sense_made_of(reader):
            held = label_times(reader, when, labels.wanted)
            when = held.when
    recorded = recorded_ns(reader, when)
    if not recorded:
        raise _nothing_recorded(reader, when)
    with reader.trouble_told():
        diagnosis = diagnosed(reader, when)
    if timelines is not None:
        timelines[:] = diagnosis.timelines
    with reader.trouble_told(), sense_made_of(reader):
        report = checked(_read(reader, when, recorded, diagnosis.extras))
    report = _judged(report, diagnosis, pids)
    if held is not None:
        report = msgspec.structs.replace(report, not_watched=[*_pauses(held), *report.not_watched])
    with reader.trouble_told(), sense_made_of(reader):
        findings = for_now(reader, with_labels(reader, when, report.findings))
        return msgspec.structs.replace(report, findings=findings, by=_by(reader, when, labels))


def _pauses(held: LabelTimes) -> Iterator[NotWatched]:
    """A diagnosis is of one stretch of time: what of it is not the label's is said."""
    other_ns = held.when.length_ns - held.held_ns
    if other_ns > 2 * SECOND:  # more than the ends of the first and the last second
        yield NotWatched(
            "only the time with the label: it was set for"
            f" {format_ns(held.held_ns)} of {format_ns(held.when.length_ns)}",
            "it was off for a while, and that time is part of this diagnosis;"
            " `ingero query --label` leaves it out",
        )


def _by(reader: Reader, when: TimeRange, labels: Labels) -> LabelReport | None:
    if labels.by is None:
        return None
    return label_report(reader, when, labels.by, held_by_all(reader, when, labels.wanted, labels.by))


def has_counted_findings(report: Report) -> bool:
    """Whether there is a finding --exit-code counts."""
    return any(finding.severity in COUNTED for finding in report.findings)


def _read(reader: Reader, when: TimeRange, recorded: int, extras: Extras) -> Report:
    """Everything the recording itself tells."""
    recordings = recordings_within(reader, when)
    processes = process_reports(reader, when, extras)
    overhead = _overhead(reader, when)
    late = late_processes(reader, when)
    losses = losses_within(reader, when.from_ns, when.to_ns)
    return Report(
        node=", ".join(dict.fromkeys(each.node for each in recordings)),
        window=ReportWindow(when.from_ns, when.to_ns, when.anchor),
        system=_system(reader, when, recordings),
        findings=[],
        processes=processes,
        losses=losses,
        overhead=overhead,
        not_watched=[
            *_not_stored(when, recordings, losses),
            *late_calls(late),
            *untimed_calls(reader, when),
            *_not_watched(when, recorded, processes, overhead.watched_share, set(late)),
        ],
        recorded_ns=recorded,
        unfinished=any(_has_no_end(each, when) for each in recordings),
    )


def _judged(report: Report, diagnosis: Diagnosed, pids: frozenset[int] | None) -> Report:
    """With the findings, worst first; of some processes where asked for."""
    return msgspec.structs.replace(
        report,
        findings=in_order(_victims(diagnosis.findings, pids)),
        unexplained=_victims(diagnosis.unexplained, pids),
        bound=[each for each in diagnosis.bound if pids is None or each.pid in pids],
        not_watched=[*report.not_watched, *diagnosis.not_watched],
        processes=report.processes if pids is None else _only(report.processes, pids),
    )


def _victims(found: list[F], pids: frozenset[int] | None) -> list[F]:
    return [each for each in found if pids is None or each.victim.pid in pids]


def _nothing_recorded(reader: Reader, when: TimeRange) -> StoreError | UsageError:
    recordings = [each for each in reader.recordings() if each.last_ns > each.started_ns]
    if not recordings:
        return StoreError(
            f"the recording in {reader.path} is empty: the trace ended within its first second",
            hint="Record again with `sudo ingero trace`.",
        )
    first, last = min(each.started_ns for each in recordings), max(each.last_ns for each in recordings)
    return UsageError(
        f"nothing was recorded between {local_time(when.from_ns)} and {local_time(when.to_ns)}",
        hint=f"{reader.path} covers {local_time(first)} to {local_time(last)}.",
    )


def _only(processes: list[ProcessReport], pids: frozenset[int]) -> list[ProcessReport]:
    found = [process for process in processes if process.pid in pids]
    if found:
        return found
    raise _not_seen(min(pids, default=None), processes)


def _not_seen(pid: int | None, processes: list[ProcessReport]) -> TargetError:
    seen = ", ".join(f"{process.pid} ({clean(process.comm, 40)})" for process in processes[:5])
    return TargetError(
        "none of these processes was seen in that time"
        if pid is None
        else f"process {pid} was not seen in that time",
        hint=f"Seen: {seen}." if seen else "No CUDA process was seen at all.",
    )


def _system(reader: Reader, when: TimeRange, recordings: list[RecordingInfo]) -> SystemContext:
    between = (when.from_ns, when.to_ns)
    cpu_share, memory_share, *psi = reader.rows(_SYSTEM, between)[0]
    last = reader.rows(_LAST_SAMPLE, between)
    load1, cores, swap_bytes = last[0] if last else (None, None, None)
    if cores is None and recordings:
        cores = recordings[-1].cores
    pressure = dict(zip(_PSI, psi, strict=True))
    cards = gpus_within(reader, when)
    return SystemContext(cpu_share, memory_share, load1, cores, swap_bytes, pressure, cards)


def _overhead(reader: Reader, when: TimeRange) -> OverheadReport:
    """Hits times what one costs on the machine that recorded, of the time of the thread with most of them.

    And what tracing takes besides: the agent's own work, cores of the jobs, and everybody's switches.
    """
    between = (when.from_ns, when.to_ns)
    hits, ns, agent_ns = reader.rows(_HITS, between)[0]
    fed_ns, taken_ns = reader.rows(_FED, between)[0][0], reader.rows(_TAKEN, between)[0][0]
    switches, switches_ns, switched_ns, cores_ns = reader.rows(_SWITCHES, between)[0]
    known = reader.rows(_COST, (when.to_ns,))
    ns_per_hit, budget = known[0] if known else (None, None)
    return OverheadReport(
        share=_share(reader, between, hits, ns_per_hit),
        budget=budget,
        hits_per_s=hits * SECOND / ns if hits is not None and ns else None,
        ns_per_hit=ns_per_hit,
        actions=[GovernorAct(*row) for row in reader.rows(_ACTIONS, between)],
        watched_share=reader.rows(_WATCHED, between)[0][0],
        # An agent that computed nothing was none: made-up events, or a recording of somebody else's.
        agent_cpu_share=agent_ns / ns if agent_ns and ns else None,
        taken_from_job_share=(taken_ns or 0) / fed_ns if fed_ns and agent_ns else None,
        bystanders_share=switches_ns / cores_ns if switches_ns is not None and cores_ns else None,
        switches_per_s=switches * SECOND / switched_ns if switches is not None and switched_ns else None,
    )


def _share(
    reader: Reader, between: tuple[int, int], hits: int | None, ns_per_hit: float | None
) -> float | None:
    """Of all feeding threads together where the worst was not recorded."""
    worst: float | None = reader.rows(_OVERHEAD, between)[0][0]
    if worst is not None:
        return worst
    fed_ns = reader.rows(_FED, between)[0][0]
    return hits * ns_per_hit / fed_ns if hits and ns_per_hit and fed_ns else None


def _has_no_end(recording: RecordingInfo, when: TimeRange) -> bool:
    """Nobody writes it any more, and nobody ended it."""
    within = recording.last_ns < when.to_ns
    return within and recording.ended_ns is None and ended(recording, time.time_ns())


def _not_stored(when: TimeRange, recordings: list[RecordingInfo], losses: list[Loss]) -> Iterator[NotWatched]:
    """What happened after the last second that is in the file."""
    last_lost_ns = max((loss.to_ns for loss in losses), default=0)
    for each in recordings:
        after = f"after {local_time(each.last_ns)}"
        if _has_no_end(each, when):
            why = "the recording was not closed: the trace was killed, or could no longer write"
            yield NotWatched(f"what happened {after}", why)
        elif each.last_ns < when.to_ns and each.last_ns + SECOND < last_lost_ns <= (each.ended_ns or 0):
            yield NotWatched(f"{format_ns(last_lost_ns - each.last_ns)} {after}", "it could not be stored")


def _not_watched(
    when: TimeRange,
    recorded: int,
    processes: list[ProcessReport],
    watched: float | None,
    late: Set[int],
) -> list[NotWatched]:
    found = []
    if when.length_ns - recorded > SECOND:
        missing = format_ns(when.length_ns - recorded)
        found.append(NotWatched(f"{missing} of {format_ns(when.length_ns)}", "nothing was recorded then"))
    governed = watched is not None and watched < 1
    estimated = {
        line.op
        for process in processes
        for line in process.operations
        if not line.exact and (governed or process.pid not in late)
    }
    if estimated:
        names = _some(clean(name, 60) for name in sorted(estimated))
        share = f"watched {format_share(watched)} of the time" if watched is not None else "sampled"
        found.append(
            NotWatched(f"some calls of {names}", f"{share} to keep the overhead low; counts are estimates")
        )
    unaccounted = [each for each in processes if feeds_gpu(each) and not each.threads_ns]
    if unaccounted:
        names = _some(f"{clean(each.comm, 40)} ({each.pid})" for each in unaccounted)
        found.append(NotWatched(f"where the time of {names} went", "no time was accounted for its threads"))
    return found


def _some(names: Iterable[str], most: int = 5) -> str:
    """The first few, whole, and how many more there are."""
    told = list(names)
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(told[:most]) + more
