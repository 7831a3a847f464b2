"""The metrics of a machine out of a recording: its cards, the machine itself, the agent that recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.report import Report
from ingero.serve.answers.gpu_metrics import GpuSeries
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader

Row = tuple[str, tuple[str, ...], float]
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
) -> Iterator[Row]:
    """`calls` are those counted in the range."""
    yield from _card_rows(reader, when, labels_of)
    between = (when.from_ns, when.to_ns)
    for last in reader.rows(_SYSTEM, between):
        told = zip(_SYSTEM_NAMES, last, strict=True)
        yield from ((name, (), float(value)) for name, value in told if value is not None)
    yield from _event_rows(reader, when, calls)
    yield from _agent_rows(reader, when, report)


def _card_rows(reader: Reader, when: TimeRange, labels_of: Labels) -> Iterator[Row]:
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


def _event_rows(reader: Reader, when: TimeRange, calls: int) -> Iterator[Row]:
    xids: dict[str, int] = {}
    events = calls
    for ids in reader.id_ranges(when.from_ns, when.to_ns):
        asked = (*ids, when.from_ns, when.to_ns)
        events += reader.rows(_KERNEL_EVENTS, asked)[0][0]
        for code, count in reader.rows(_XIDS, asked):
            xids[str(code)] = xids.get(str(code), 0) + count
    yield "events", (), events
    yield from (("gpu.xid.errors", (code,), count) for code, count in sorted(xids.items()))


def _agent_rows(reader: Reader, when: TimeRange, report: Report) -> Iterator[Row]:
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
