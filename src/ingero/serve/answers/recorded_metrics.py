"""The metrics of a recording: the same rows as while tracing, as far as the database holds them.

Totals of the range; every process and operation has its own series, for a file need not be
bounded. What only a live agent knows (probes, database, GPUs now) is not among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ingero import units
from ingero.model.finding import Finding
from ingero.model.metrics import Distribution, Point, Snapshot
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.metric_accounts import NAME
from ingero.serve.answers.operations import Filters, conditions, totals_by_process
from ingero.serve.answers.query import Range
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import default_path
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS

_TIME = f"SELECT process_id, {', '.join(f'SUM({column})' for column in BUCKET_COLUMNS)} FROM thread_second"
_WHO = """
    SELECT p.id, p.pid, p.comm, c.container_id, c.pod, c.namespace, p.rank, p.world_size, c.runtime, c.job
    FROM process p LEFT JOIN container c ON c.cgroup_id = p.cgroup_id AND c.node_id = p.node_id"""
Row = tuple[str, tuple[str, ...], float | Distribution]
People = dict[int | None, tuple[str, ...]]


def recorded_metrics(
    db: Path | None, wanted: Range, pid: int | None = None, node: str | None = None
) -> Iterator[Snapshot]:
    """One snapshot per node, at the end of the range."""
    path = db or default_path()
    with Reader(path, node) as reader:
        nodes = reader.nodes()
    for each in nodes:
        report = get_report(path, wanted, pid, node=each)
        with closing(Reader(path, each)) as reader:
            when = time_range(reader, wanted.since, wanted.start, wanted.end)
            rows = [*_series(reader, when, pid), *_findings(reader, report.findings)]
        rows += [("lost.events", (loss.reason,), loss.count) for loss in report.losses]
        if report.overhead.share is not None:
            rows.append(("overhead", (), report.overhead.share))
        points: dict[str, dict[tuple[str, ...], Point]] = {}
        for name, labels, value in rows:
            points.setdefault(name, {})[labels] = Point(labels, value, when.from_ns)
        series = {name: list(found.values()) for name, found in points.items()}
        yield Snapshot(when.to_ns, when.from_ns, each, series, tuple(report.findings))


def _people(reader: Reader) -> tuple[People, People]:
    """Labels of processes, and all that is known of them."""
    short: People = {}
    long: People = {}
    for number, pid, *names in reader.rows(_WHO):
        told = [units.clean(str(name), NAME) if name is not None else "" for name in names]
        short[number] = (str(pid), *told[:4])
        long[number] = (*short[number], *told[4:])
    return short, long


def _series(reader: Reader, when: TimeRange, pid: int | None) -> Iterator[Row]:
    people, more = _people(reader)
    seen: set[int | None] = set()
    for number, layer, op, kind, calls in totals_by_process(reader, when, Filters(pid=pid)):
        who = people.get(number, ("", "", "", "", ""))
        seen.add(number)
        yield "operation.calls", (*who, layer, op), calls.count
        yield "operation.errors", (*who, layer, op), calls.errors
        if calls.slots.any():
            timed = Distribution(calls.slots, calls.sum_ns, calls.max_ns or 0)
            yield "operation.duration", (*who, layer, op), timed
        if kind == "collective":
            yield "collective.calls", (*who, op), calls.count
            yield "collective.size", (*who, op), calls.bytes or 0
    where, parameters = conditions(reader, Filters(pid=pid))
    within = f" WHERE feeder AND start_ns >= ? AND start_ns < ?{where} GROUP BY process_id"
    for number, *sums in reader.rows(_TIME + within, (when.from_ns, when.to_ns, *parameters)):
        seen.add(number)
        who = people.get(number, ("", "", "", "", ""))
        for bucket, ns in zip(BUCKET_NAMES, sums, strict=True):
            if ns:
                yield "thread.time", (*who, bucket), ns / 1e9
    yield from (("process.info", more[number], 1) for number in seen if number in more)


def _findings(reader: Reader, findings: list[Finding]) -> Iterator[Row]:
    people = {labels[0]: labels for labels in _people(reader)[0].values()}
    counts: dict[tuple[str, ...], int] = {}
    for finding in findings:
        name = finding.kind, str(finding.severity)
        counts[name] = counts.get(name, 0) + 1
        if finding.effect.wall_share is not None:
            who = people.get(str(finding.victim.pid), (str(finding.victim.pid), "", "", "", ""))
            yield "finding.lost_time", (*who, *name), finding.effect.wall_share
    yield from (("findings.found", name, count) for name, count in counts.items())
