"""The processes of a report: where their time went, their calls, their worst stall.

Processes that feed a GPU come first, then those whose threads were watched because
they work for one, then those that only took cores from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ingero.model.operations import LAYER_SOURCE as LAYERS
from ingero.model.report import OperationLine, ProcessReport, StepTime, ThreadLine
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.call_sites import process_lines, worst_stalls
from ingero.serve.answers.operations import OperationStats, stats_by_process
from ingero.serve.answers.shares import off_cpu, together
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS, ON_CORE

ONLY_TAKERS = 10  # processes shown for nothing but the cores they took
TAKER_SHARE = 0.01  # of all the time taken

_SUMS = ", ".join(f"SUM(t.{column})" for column in BUCKET_COLUMNS)
_THREADS = f"""
    SELECT t.process_id, t.tid, MAX(s.text), MAX(t.feeder), SUM(t.voluntary_switches),
        SUM(t.involuntary_switches), @ON_CORE@, {_SUMS}
    FROM thread_second t
    LEFT JOIN string s ON s.id = t.comm_id
    WHERE t.start_ns >= ? AND t.start_ns < ?
    GROUP BY t.process_id, t.tid"""
# A recording of before does not have them, and one of then and now has them of a part.
_ON_CORE = ", ".join(f"IIF(COUNT(t.{column}) = COUNT(*), SUM(t.{column}), NULL)" for column in ON_CORE)
_HAS_ON_CORE = f"SELECT 1 FROM pragma_table_info('thread_second') WHERE name = '{ON_CORE[0]}'"
_ESTIMATED = "SELECT pid, SUM(ns) FROM thread_estimate WHERE start_ns >= ? AND start_ns < ? GROUP BY pid"
_SEEN = """
    SELECT DISTINCT process_id, node_id, start_ns FROM thread_second WHERE start_ns >= ? AND start_ns < ?"""
_WINDOWS = "SELECT node_id, start_ns, end_ns - start_ns FROM window WHERE start_ns >= ? AND start_ns < ?"
_TAKEN = """
    WITH feeding AS MATERIALIZED (
        SELECT DISTINCT node_id, pid, tid FROM thread_second
        WHERE start_ns >= ?1 AND start_ns < ?2 AND feeder)
    SELECT c.node_id, c.pid, MAX(s.text), SUM(c.ns)
    FROM culprit c
    JOIN feeding f ON f.node_id = c.node_id AND f.pid = c.victim_pid AND f.tid = c.victim_tid
    LEFT JOIN string s ON s.id = c.comm_id
    WHERE c.start_ns >= ?1 AND c.start_ns < ?2 AND c.pid IS NOT NULL AND c.pid <> c.victim_pid
        AND NOT c.throttled AND c.bucket = ?3
    GROUP BY c.node_id, c.pid"""
_ABOUT = """
    SELECT p.id, p.node_id, p.pid, p.comm, p.cmdline, p.start_ns, p.end_ns, c.pod, c.namespace,
        c.container_id, c.job
    FROM process p
    LEFT JOIN container c ON c.cgroup_id = p.cgroup_id AND c.node_id = p.node_id
    WHERE COALESCE(p.start_ns, p.first_seen_ns, 0) < ? AND COALESCE(p.end_ns, ?) >= ?
    ORDER BY COALESCE(p.start_ns, p.first_seen_ns, 0)"""


@dataclass(frozen=True)
class Extras:
    """What only the diagnosis knows of a process, by PID."""

    steps: dict[int, StepTime] = field(default_factory=dict)
    gpu_idle_ns: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _About:
    """What is known of a process beside its time."""

    node_id: int
    pid: int
    comm: str
    cmdline: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    container: str | None = None

    def wall_ns(self, windows_ns: int, wanted: TimeRange) -> int:
        """The windows it was seen in, as far as it lived in them."""
        start_ns, end_ns = (
            max(self.start_ns or 0, wanted.from_ns),
            min(self.end_ns or wanted.to_ns, wanted.to_ns),
        )
        return max(0, min(windows_ns, end_ns - start_ns))


def process_reports(reader: Reader, wanted: TimeRange, extras: Extras | None = None) -> list[ProcessReport]:
    """Every process with a part in it, the one that feeds most first; `reader` is of one node."""
    about = dict(_abouts(reader, wanted))
    threads = _threads(reader, wanted)
    operations = {
        key: calls
        for key, stats in stats_by_process(reader, wanted).items()
        if (calls := [each for each in stats if each.layer in LAYERS])
    }
    feeders = {key: frozenset(t.tid for t in lines if t.feeder) for key, lines in threads.items()}
    stalls = worst_stalls(reader, wanted, feeders)
    walls = _walls(reader, wanted)
    taken = _taken(reader, wanted, about, set(threads) | set(operations))
    extras = extras or Extras()
    code = process_lines(reader, wanted)
    estimated = dict(reader.rows(_ESTIMATED, (wanted.from_ns, wanted.to_ns)))
    reports = []
    for key in {*threads, *operations, *taken}:
        who = about.get(key) or _About(0, _pid_of(operations.get(key, ())), "?")
        lines = threads.get(key, [])
        # A thread is never watched longer than its process, whatever the process's start says.
        wall_ns = max([who.wall_ns(walls.get(key, 0), wanted), *(line.ns for line in lines)])
        reports.append(
            ProcessReport(
                pid=who.pid,
                comm=lines[0].comm if who.comm == "?" and lines else who.comm,
                cmdline=who.cmdline,
                container=who.container,
                threads=lines,
                wall_ns=wall_ns,
                threads_ns=sum(line.ns for line in lines if line.feeder),
                time=_added(line.time for line in lines if line.feeder),
                operations=[_operation(stats, wall_ns) for stats in operations.get(key, ())],
                step=extras.steps.get(who.pid),
                gpu_idle_ns=extras.gpu_idle_ns.get(who.pid),
                worst_stall=stalls.get(key),
                cpu_taken_ns=taken.get(key, 0),
                lines=code.get(who.pid, []),
                estimated_ns=estimated.get(who.pid, 0),
                off_cpu=together(line.off_cpu for line in _told(lines)),
            )
        )
    return sorted(reports, key=_order)


def _told(lines: list[ThreadLine]) -> list[ThreadLine]:
    """The threads that feed the GPU, or all where none does."""
    return [line for line in lines if line.feeder] or lines


def feeds_gpu(process: ProcessReport) -> bool:
    """It has a thread that feeds a GPU, or called CUDA or NCCL: not only Python's garbage collector."""
    return bool(process.threads_ns or any(each.layer != "python" for each in process.operations))


def _order(process: ProcessReport) -> tuple[Any, ...]:
    return (
        not feeds_gpu(process),
        not process.threads,
        -process.threads_ns,
        -process.cpu_taken_ns,
        -sum(thread.ns for thread in process.threads),
        process.pid,
    )


def _abouts(reader: Reader, wanted: TimeRange) -> Iterator[tuple[int, _About]]:
    rows = reader.rows(_ABOUT, (wanted.to_ns, wanted.to_ns, wanted.from_ns))
    for key, node_id, pid, comm, cmdline, start_ns, end_ns, pod, namespace, container_id, job in rows:
        place = _place(pod, namespace, container_id, job)
        yield key, _About(node_id, pid, comm or "?", cmdline or None, start_ns, end_ns, place)


def _place(pod: str | None, namespace: str | None, container_id: str | None, job: str | None) -> str | None:
    if pod:
        return f"{namespace}/{pod}" if namespace else pod
    return container_id[:12] if container_id else job or None


def _pid_of(operations: Iterable[OperationStats]) -> int:
    return next((stats.pids[0] for stats in operations if stats.pids), 0)


def _threads(reader: Reader, wanted: TimeRange) -> dict[int, list[ThreadLine]]:
    found: dict[int, list[ThreadLine]] = {}
    sql = _THREADS.replace("@ON_CORE@", _ON_CORE if reader.rows(_HAS_ON_CORE) else "NULL, NULL")
    for row in reader.rows(sql, (wanted.from_ns, wanted.to_ns)):
        key, tid, comm, feeder, voluntary, involuntary, spun, reclaiming, *sums = row
        time = {name: ns for name, ns in zip(BUCKET_NAMES, sums, strict=True) if ns}
        away = off_cpu(time, {"gpu_wait": spun, "memory_wait": reclaiming})
        line = ThreadLine(tid, comm or "?", bool(feeder), sum(sums), time, voluntary, involuntary, away)
        found.setdefault(key or 0, []).append(line)
    for lines in found.values():
        lines.sort(key=lambda line: (not line.feeder, -line.ns, line.tid))
    return found


def _walls(reader: Reader, wanted: TimeRange) -> dict[int, int]:
    """How long each process was watched: the length of the windows it has time in."""
    between = (wanted.from_ns, wanted.to_ns)
    lengths = {(node_id, start_ns): ns for node_id, start_ns, ns in reader.rows(_WINDOWS, between)}
    walls: dict[int, int] = {}
    for key, node_id, start_ns in reader.rows(_SEEN, between):
        walls[key or 0] = walls.get(key or 0, 0) + lengths.get((node_id, start_ns), 0)
    return walls


def _taken(reader: Reader, wanted: TimeRange, about: dict[int, _About], watched: set[int]) -> dict[int, int]:
    """Core time taken from feeding threads of other processes, by the process that ran."""
    # The last that had the PID: culprits are told by PID, and the row is written in order of start.
    by_pid = {(who.node_id, who.pid): key for key, who in about.items()}
    found: dict[int, int] = {}
    runqueue = BUCKET_NAMES.index("runqueue")
    for node_id, pid, comm, ns in reader.rows(_TAKEN, (wanted.from_ns, wanted.to_ns, runqueue)):
        key = by_pid.get((node_id, pid))
        if key is None:  # a bystander: known by its name alone
            key = -len(about) - 1
            about[key] = _About(node_id, pid, comm or "?")
        found[key] = found.get(key, 0) + ns
    least_ns = TAKER_SHARE * sum(found.values())
    takers = [key for key in sorted(found, key=lambda key: -found[key]) if key not in watched]
    shown = watched | {key for key in takers[:ONLY_TAKERS] if found[key] >= least_ns}
    return {key: ns for key, ns in found.items() if key in shown}


def _added(times: Iterable[dict[str, int]]) -> dict[str, int]:
    total = dict.fromkeys((*BUCKET_NAMES, "lost"), 0)
    for time in times:
        for bucket, ns in time.items():
            total[bucket] = total.get(bucket, 0) + ns
    return total


def _operation(stats: OperationStats, wall_ns: int) -> OperationLine:
    share = stats.sum_ns / wall_ns if wall_ns else stats.wall_share or 0.0
    return OperationLine(
        layer=stats.layer,
        op=stats.op,
        count=stats.count,
        exact=stats.exact,
        p50_ns=stats.p50_ns,
        p95_ns=stats.p95_ns,
        p99_ns=stats.p99_ns,
        max_ns=stats.max_ns,
        wall_share=share,
        bytes=stats.bytes,
        count_error=stats.count_error,
    )
