"""The metrics of a recording: the same rows as while tracing, as far as the database holds them.

Totals of the range; every process and operation has its own series, for a file need not be
bounded. A process whose number an earlier one had has points of its own, from its begin to its
end. What only a live agent knows says so in its row of model/metrics.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path

from ingero import units
from ingero.errors import TargetError
from ingero.model.finding import Finding
from ingero.model.gpus import UNPRICED, GpuCard, GpuNews, GpuProcess, GpuSample, Prices
from ingero.model.metrics import Distribution, SeriesPoint, Snapshot
from ingero.model.report import Report
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.cost import CostLine, lines_by_driver
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.gpu_metrics import GpuSeries
from ingero.serve.answers.operations import Filters, Totals, conditions, totals_by_process
from ingero.serve.answers.process_metrics import NAME
from ingero.serve.answers.query import Range
from ingero.serve.answers.recorded_bytes import allocated, copied
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS, GAP_COLUMNS
from ingero.units import SECOND

_SUMS = ", ".join(f"SUM({column})" for column in BUCKET_COLUMNS)
_TIME = f"SELECT process_id, SUM({' + '.join(GAP_COLUMNS)}), {_SUMS} FROM thread_second"
_WHO = """
    SELECT p.id, p.start_ns, p.end_ns, p.pid, p.comm, c.container_id, c.pod, c.namespace, p.rank,
        p.world_size, c.runtime, COALESCE(j.value, c.job)
    FROM process p LEFT JOIN container c ON c.cgroup_id = p.cgroup_id AND c.node_id = p.node_id
    LEFT JOIN process_label j ON j.process_id = p.id AND j.key = 'job'
    ORDER BY p.pid, COALESCE(p.start_ns, p.first_seen_ns, 0), p.id"""
# Not returned from when last looked at, which was in the last seconds of the range.
_IN_FLIGHT = """
    SELECT f.process_id, o.name, MAX(f.last_seen_ns - f.since_ns)
    FROM in_flight f JOIN op o ON o.id = f.op_id
    WHERE f.since_ns < ?1 AND f.last_seen_ns - f.since_ns >= ?2 AND f.last_seen_ns >=
        (SELECT MAX(end_ns) FROM window WHERE end_ns <= ?1 AND start_ns >= ?3) - 2 * ?2
        AND (?4 IS NULL OR f.pid = ?4)
    GROUP BY f.process_id, o.name"""
Operations = list[tuple[int | None, str, str, str, Totals]]


@dataclass(frozen=True)
class Person:
    """The labels of a process, those of its info, and when it lived."""

    labels: tuple[str, ...] = ("", "", "", "", "")
    more: tuple[str, ...] = ()
    start_ns: int | None = None
    end_ns: int | None = None


People = dict[int | None, Person]
Row = tuple[str, Person | None, tuple[str, ...], float | Distribution]  # metric, whose, further labels, value


def recorded_metrics(
    db: Path | None,
    wanted: Range,
    pid: int | None = None,
    node: str | None = None,
    prices: Prices = UNPRICED,
) -> Iterator[Snapshot]:
    """One snapshot per node, at the end of the range; of one process, of the nodes that have it."""
    path = db or last_path()
    with Reader(path, node) as reader:
        nodes = reader.nodes()
    absent: list[TargetError] = []
    for each in nodes:
        try:
            report = get_report(path, wanted, pid, node=each)
        except TargetError as error:
            absent.append(error)
            continue
        with closing(Reader(path, each)) as reader:
            when = time_range(reader, wanted.since, wanted.start, wanted.end)
            points = _points(reader, when, pid, report, prices)
        yield Snapshot(when.to_ns, when.from_ns, each, points, tuple(report.findings))
    if absent and len(absent) == len(nodes):
        raise absent[0]


def recorded_rounds(
    db: Path | None, told_ns: dict[str, int], round_ns: int, reach_ns: int
) -> Iterator[tuple[Snapshot, Report]]:
    """What was recorded of each node since it was last told of, a round at most, with the diagnosis of the
    time before it; nodes of which nothing was recorded since then are left out."""
    path = db or last_path()
    with Reader(path) as reader:
        nodes = reader.nodes()
    for each in nodes:
        with closing(Reader(path, each)) as reader:
            last_ns = max((found.last_ns for found in reader.recordings()), default=0)
            from_ns = max(told_ns.get(each, 0), last_ns - round_ns)
            if last_ns <= from_ns:
                continue
            before = Range(start=str(last_ns - reach_ns), end=str(last_ns + 1))
            report = get_report(path, before, node=each)
            points = _points(reader, TimeRange(from_ns, last_ns + 1, "given"), None, report, UNPRICED)
        yield Snapshot(last_ns, from_ns, each, points, tuple(report.findings)), report


def _points(
    reader: Reader, when: TimeRange, pid: int | None, report: Report, prices: Prices
) -> dict[str, list[SeriesPoint]]:
    found: dict[str, dict[tuple[str, ...], dict[int, SeriesPoint]]] = {}
    for name, who, more, value in _rows(reader, when, pid, report, prices):
        labels = (*who.labels, *more) if who else more
        start_ns = max(when.from_ns, (who.start_ns if who else None) or 0)
        end_ns = who.end_ns if who and who.end_ns is not None and who.end_ns < when.to_ns else None
        found.setdefault(name, {}).setdefault(labels, {})[start_ns] = SeriesPoint(
            labels, value, start_ns, end_ns
        )
    return {
        name: [point for _, series in sorted(each.items()) for _, point in sorted(series.items())]
        for name, each in found.items()
    }


def _rows(reader: Reader, when: TimeRange, pid: int | None, report: Report, prices: Prices) -> Iterator[Row]:
    people = _people(reader)
    operations = totals_by_process(reader, when, Filters(pid=pid))
    lines = lines_by_driver(reader, when, report.findings, prices)
    if pid is not None:
        lines = {number: lines[number] for number in _numbers(reader, pid) & lines.keys()}
    yield from _process_rows(reader, when, pid, people, operations, lines, prices.currency)
    yield from _findings(people, report.findings)
    calls = sum(totals.count for *_, totals in operations)
    known = {number: each.labels for number, each in people.items()}
    for name, labels, value in machine_rows(reader, when, report, calls, known):
        yield name, None, labels, value


def _people(reader: Reader) -> People:
    """A number is one process's until the next one has it."""
    found: People = {}
    rows = reader.rows(_WHO)
    for at, (number, start_ns, end_ns, pid, *names) in enumerate(rows):
        told = [units.clean(str(name), NAME) if name is not None else "" for name in names]
        later = rows[at + 1][1] if at + 1 < len(rows) and rows[at + 1][3] == pid else None
        known = [each for each in (end_ns, later) if each is not None]
        labels = (str(pid), *told[:4])
        found[number] = Person(labels, tuple(told[4:]), start_ns, min(known) if known else None)
    return found


def _process_rows(
    reader: Reader,
    when: TimeRange,
    pid: int | None,
    people: People,
    operations: Operations,
    lines: dict[int, CostLine],
    currency: str,
) -> Iterator[Row]:
    seen: set[int | None] = set()
    for name, number, more, value in (
        *_series(reader, when, pid, operations),
        *((name, number, more, value) for number, line in lines.items()
          for name, more, value in _spent(line, currency)),
    ):  # fmt: skip
        seen.add(number)
        yield name, people.get(number, Person()), more, value
    for number in seen & people.keys():
        yield "process.info", people[number], people[number].more, 1


def _series(
    reader: Reader, when: TimeRange, pid: int | None, operations: Operations
) -> Iterator[tuple[str, int | None, tuple[str, ...], float | Distribution]]:
    """(metric, process, labels beside its own, value)."""
    for number, layer, op, kind, calls in operations:
        yield "operation.calls", number, (layer, op), calls.count
        yield "operation.errors", number, (layer, op), calls.errors
        if calls.slots.any():
            timed = Distribution(calls.slots, calls.sum_ns, calls.max_ns or 0)
            yield "operation.duration", number, (layer, op), timed
        if kind == "collective":
            yield "collective.calls", number, (op,), calls.count
            yield "collective.size", number, (op,), calls.bytes or 0
    for (number, direction), size in copied(reader, when, operations).items():
        yield "gpu.memcpy", number, (direction,), size
    for number, size in allocated(operations).items():
        yield "gpu.allocated", number, (), size
    where, parameters = conditions(reader, Filters(pid=pid))
    within = f" WHERE feeder AND start_ns >= ? AND start_ns < ?{where} GROUP BY process_id"
    for number, idle_ns, *sums in reader.rows(_TIME + within, (when.from_ns, when.to_ns, *parameters)):
        if any(sums):
            yield "gpu.idle.time", number, (), idle_ns / 1e9
        for bucket, ns in zip(BUCKET_NAMES, sums, strict=True):
            if ns:
                yield "thread.time", number, (bucket,), ns / 1e9
    for number, op, ns in reader.rows(_IN_FLIGHT, (when.to_ns, SECOND, when.from_ns, pid)):
        yield "call.in_flight", number, (op,), ns / 1e9


def _spent(line: CostLine, currency: str) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """What `ingero cost` says of a process. Of a GPU that does not tell how busy it is, nothing but held."""
    yield "gpu.held.time", (), line.held_ns / 1e9
    if line.unknown_ns < line.held_ns:
        yield "gpu.busy.time", (), line.busy_ns / 1e9
        yield "gpu.idle_without_finding.time", (), line.idle_ns / 1e9
    for each in line.lost:
        yield "gpu.lost.time", (each.kind,), each.ns / 1e9
        if each.money is not None:
            yield "gpu.cost.lost", (each.kind, currency), each.money
    if line.money is not None:
        yield "gpu.cost", (currency,), line.money


def _numbers(reader: Reader, pid: int) -> set[int]:
    return {row[0] for row in reader.rows("SELECT id FROM process WHERE pid = ?", (pid,))}


def _findings(people: People, findings: list[Finding]) -> Iterator[Row]:
    """What the diagnosis of all of it finds, as that of a trace does at its end."""
    counts: dict[tuple[str, ...], int] = {}
    for finding in findings:
        name = finding.kind, str(finding.severity)
        counts[name] = counts.get(name, 0) + 1
        if finding.effect.wall_share is not None:
            yield "finding.lost_time", _victim(people, finding), name, finding.effect.wall_share
    for kind, count in counts.items():
        yield "findings", None, kind, count
        yield "findings.found", None, kind, count


def _victim(people: People, finding: Finding) -> Person:
    """The last that had its number before it ended."""
    pid = str(finding.victim.pid)
    lives = [each for each in people.values() if each.labels[0] == pid]
    then = [each for each in lives if (each.start_ns or 0) <= finding.last_ns]
    return then[-1] if then else lives[0] if lives else Person((pid, "", "", "", ""))


# The metrics of a machine out of a recording: its cards, the machine itself, the agent that recorded.


MachineRow = tuple[str, tuple[str, ...], float]
Labels = Mapping[int | None, tuple[str, ...]]  # of a process, by its row
_SAMPLE = tuple(field.name for field in fields(GpuSample))
_SAMPLES = f"SELECT {', '.join(_SAMPLE)} FROM gpu_sample WHERE at_ns >= ? AND at_ns < ? ORDER BY at_ns"
_CARDS = "SELECT gpu_id, name, NULLIF(uuid, ''), memory_bytes FROM gpu ORDER BY last_ns"
_ON_CARDS = """
    SELECT t.gpu_id, t.at_ns, t.pid, s.text, t.memory_bytes, t.process_id FROM gpu_process t
    LEFT JOIN string s ON s.id = t.comm_id
    WHERE t.at_ns = (SELECT MAX(o.at_ns) FROM gpu_sample o WHERE o.gpu_id = t.gpu_id AND o.at_ns >= ?
        AND o.at_ns < ?)"""
_XIDS = """
    SELECT e.arg0, COUNT(*) FROM event e JOIN op o ON o.id = e.op_id
    WHERE o.layer = 'host' AND o.name = 'xid' AND e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ?
    GROUP BY e.arg0"""
# What live.events_in counts beside calls: waits, block requests, retransmits, and rare events.
_KERNEL_EVENTS = """
    SELECT COUNT(*) FROM event e JOIN op o ON o.id = e.op_id
    WHERE (o.layer IN ('block', 'tcp') OR o.name IN (SELECT name FROM bucket)
            OR o.name IN ('oom_kill', 'xid'))
        AND e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ?"""
_SYSTEM = """
    SELECT cpu_share, memory_share, memory_available_bytes, load1, swap_bytes FROM system_sample
    WHERE at_ns >= ? AND at_ns < ? ORDER BY at_ns DESC LIMIT 1"""
_SYSTEM_NAMES = ("system.cpu", "system.memory", "system.memory.available", "system.load1", "system.swap")
_AGENT = "SELECT SUM(hits), SUM(agent_cpu_ns), MAX(end_ns) FROM window WHERE end_ns > ? AND start_ns < ?"
_TARGETS = """
    SELECT COUNT(*) FROM process
    WHERE target AND COALESCE(start_ns, first_seen_ns, 0) < ?1 AND COALESCE(end_ns, ?1) >= ?1"""
_VERSION = """
    SELECT r.version, n.name FROM recording r JOIN node n ON n.id = r.node_id
    WHERE r.started_ns < ? ORDER BY r.started_ns DESC LIMIT 1"""


def machine_rows(
    reader: Reader, when: TimeRange, report: Report, calls: int, labels_of: Labels
) -> Iterator[MachineRow]:
    """`calls` are those counted in the range."""
    yield from _card_rows(reader, when, labels_of)
    between = (when.from_ns, when.to_ns)
    for last in reader.rows(_SYSTEM, between):
        told = zip(_SYSTEM_NAMES, last, strict=True)
        yield from ((name, (), float(value)) for name, value in told if value is not None)
    yield from _event_rows(reader, when, calls)
    yield from _agent_rows(reader, when, report)


def _card_rows(reader: Reader, when: TimeRange, labels_of: Labels) -> Iterator[MachineRow]:
    """Every card's last sample, also that of one which did not answer any more later."""
    series, last = GpuSeries(), dict[int, int]()
    between = (when.from_ns, when.to_ns)
    for row in reader.connection.execute(_SAMPLES, between):
        sample = GpuSample(*row)
        last[sample.gpu_id] = sample.at_ns
        series.add(GpuNews(samples=(sample,)), sample.at_ns)
    if not last:
        return
    cards = [
        GpuCard(gpu_id, name, uuid, memory_bytes=size) for gpu_id, name, uuid, size in reader.rows(_CARDS)
    ]
    rows = reader.rows(_ON_CARDS, between)
    series.tell(cards, [GpuProcess(*row[:5]) for row in rows], min(last.values()))
    numbers = {row[2]: (row[5], row[3]) for row in rows}

    def of_pid(pid: int) -> tuple[str, ...]:
        number, comm = numbers.get(pid, (None, None))
        return labels_of.get(number) or (str(pid), comm or "", "", "", "")

    yield from ((name, labels, value) for name, labels, value, _ in series.rows(of_pid))


def _event_rows(reader: Reader, when: TimeRange, calls: int) -> Iterator[MachineRow]:
    xids: dict[str, int] = {}
    events = calls
    for ids in reader.id_ranges(when.from_ns, when.to_ns):
        asked = (*ids, when.from_ns, when.to_ns)
        events += reader.rows(_KERNEL_EVENTS, asked)[0][0]
        for code, count in reader.rows(_XIDS, asked):
            xids[str(code)] = xids.get(str(code), 0) + count
    yield "events", (), events
    yield from (("gpu.xid.errors", (code,), count) for code, count in sorted(xids.items()))


def _agent_rows(reader: Reader, when: TimeRange, report: Report) -> Iterator[MachineRow]:
    hits, cpu_ns, last_ns = reader.rows(_AGENT, (when.from_ns, when.to_ns))[0]
    told = {
        "probe.hits": hits,
        "agent.cpu.time": None if cpu_ns is None else cpu_ns / 1e9,
        "agent.last_window.timestamp": None if last_ns is None else last_ns / 1e9,
        "overhead": report.overhead.share,
        "overhead.budget": report.overhead.budget,
        "overhead.taken_from_jobs": report.overhead.taken_from_job_share,
        "overhead.bystanders": report.overhead.bystanders_share,
        "targets": reader.rows(_TARGETS, (when.to_ns,))[0][0],
    }
    yield from ((name, (), value) for name, value in told.items() if value is not None)
    for version, node in reader.rows(_VERSION, (when.to_ns,)):
        yield "build.info", (version or "", node), 1
    yield from (("lost.events", (loss.reason,), loss.count) for loss in report.losses)
