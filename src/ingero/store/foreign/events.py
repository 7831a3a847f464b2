"""Rows of the file's `events` as rows of ours: ids kept, unknown made NULL.

Begin, not end, is what our events carry. What the file stores beside a row and is
not so is left out: gpu_id is always 0, a switch names itself as the task that had
the core and carries somebody else's cgroup, a retransmit the process it interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingero.model.operations import Source
from ingero.store.foreign.source import Conversion
from ingero.store.schema import NODE_SHIFT, SEQ_MASK
from ingero.units import SECOND

MAX_SECTORS, MAX_BYTES = 1 << 32, 1 << 50  # of one request, one call: above is damage
_PUT = f"""
    INSERT OR IGNORE INTO event (id, node_id, source, op_id, ts_ns, pid, tid, process_id, comm_id, cgroup_id,
        duration_ns, flags, ret, arg0, arg1, bytes, stream, out, direction, stack_hash)
    SELECT n.id << {NODE_SHIFT} | ?2, n.id, ?3, o.id, ?5, ?6, ?7, p.id,
        COALESCE((SELECT id FROM foreign_comm WHERE raw = ?8), p.comm_id), ?9, ?10, ?11, ?12, ?13, ?14,
        ?15, ?16, ?17, ?18, ?19
    FROM foreign_node n
    JOIN foreign_op o ON o.source = ?3 AND o.op = ?4
    LEFT JOIN foreign_process p ON p.node_id = n.id AND p.pid = ?6
    WHERE n.raw = ?1"""


def operations(work: Conversion) -> None:
    """Our numbers of the operations the file may name."""
    rows = [
        (int(o.source), o.op, work.names.op(o.source, o.layer, o.name, o.kind, o.bytes_known)) for o in ALL
    ]
    work.out.executemany("INSERT INTO foreign_op VALUES (?, ?, ?)", rows)


def events(work: Conversion) -> None:
    """Every row that has an instant and a known operation; the others are counted."""
    number = _number_sql()
    usable = f"{work.ns_sql('timestamp')} IS NOT NULL"
    numbered = f"{number} BETWEEN 1 AND {SEQ_MASK}"
    put = _put(work, number, f"{usable} AND {numbered}")
    if work.go.number(f"SELECT COUNT(*) FROM events WHERE NOT ({numbered})"):
        above = f"row_number() OVER () + {_highest(work)}"  # a number of their own for those without
        put += _put(work, above, f"{usable} AND NOT ({numbered})")
    _count_problems(work, put, usable)
    for node_id in work.nodes:
        first = node_id << NODE_SHIFT
        work.out.execute(
            "UPDATE node SET next_seq = MAX(next_seq, 1 + COALESCE((SELECT MAX(id) FROM event"
            " WHERE id BETWEEN ? AND ?), 0) - ?) WHERE id = ?",
            (first, first + SEQ_MASK, first, node_id),
        )


def _put(work: Conversion, seq: str, wanted: str) -> int:
    sql = f"SELECT {_columns(work, seq)} FROM events WHERE {wanted}"
    return work.out.executemany(_PUT, work.go.rows(sql, (work.default_node,))).rowcount


def _number_sql() -> str:
    digits = 'substr("id", length(rtrim(substr("id", 1, 300), \'0123456789\')) + 1, 19)'
    return (
        'COALESCE(CASE typeof("id") WHEN \'integer\' THEN "id"'
        f" WHEN 'text' THEN CAST({digits} AS INTEGER) END, 0)"
    )


def _highest(work: Conversion) -> int:
    number = _number_sql()
    found = work.go.number(f"SELECT MAX({number}) FROM events WHERE {number} BETWEEN 1 AND {SEQ_MASK >> 1}")
    kept = work.out.execute("SELECT COALESCE(MAX(next_seq), 1) FROM node").fetchone()[0]
    return max(found, int(kept))


def _columns(work: Conversion, seq: str) -> str:
    """The 19 values _PUT takes."""
    go = work.go
    at, took = work.ns_sql("timestamp"), work.ns_sql("duration")
    arg0, arg1 = go.whole("events", "arg0"), go.whole("events", "arg1")
    call, switch = f"source IN {CALLS}", f"(source = 3 AND op = {SWITCH})"
    ends = f"({switch} OR source IN (5, 7))"  # stored with its end
    oom, clone = f"(source = 3 AND op = {OOM})", f"(source = 3 AND op = {CLONE})"
    columns = (
        work.node_sql(),
        seq,
        go.whole("events", "source"),
        f"CASE WHEN source = 3 AND op = {EXIT} AND tid <> pid THEN {THREAD_EXIT}"
        f" WHEN op < {THREAD_EXIT} THEN {go.whole('events', 'op')} END",
        f"CASE WHEN {ends} THEN max(0, {at} - COALESCE({took}, 0)) ELSE {at} END",
        f"CASE WHEN {oom} THEN {work.pid_sql('arg1')} WHEN source <> 6 THEN {work.pid_sql('pid')} END",
        f"CASE WHEN source <> 6 AND NOT {oom} THEN {work.pid_sql('tid')} END",
        go.text("events", "comm", 64),
        f"CASE WHEN NOT {switch} AND source <> 6 THEN {work.cgroup_sql()} END",
        f"CASE WHEN {call} OR {ends} THEN {took} END",
        f"CASE WHEN {call} THEN 0 END",
        f"CASE WHEN {call} THEN {go.whole('events', 'ret_code')} END",
        f"CASE WHEN source = 5 OR {clone} THEN {arg1} WHEN source = 8 THEN NULLIF({arg0}, 0)"
        f" WHEN source <> 6 AND NOT {switch} THEN {arg0} END",
        f"CASE WHEN source = 5 THEN {go.between('events', 'arg0', 0, MAX_SECTORS)} * 512"
        f" WHEN source NOT IN (3, 6) THEN {arg1} END",
        f"CASE WHEN {_sized()} THEN {go.between('events', 'arg0', 0, MAX_BYTES)} END",
        f"CASE WHEN source = 1 AND op = 3 THEN NULLIF({arg1}, 0)"
        f" WHEN source = 1 AND op = 5 THEN NULLIF({arg0}, 0) END",
        f"CASE WHEN source = 1 AND op IN (1, 8) THEN NULLIF({arg1}, 0) END",
        f"CASE WHEN source = 1 AND op IN (4, 7, 9, 10) THEN {go.between('events', 'arg1', 0, 3)}"
        " WHEN source = 1 AND op IN (11, 12) THEN 3 END",
        f"NULLIF({go.whole('events', 'stack_hash')}, 0)",
    )
    return ", ".join(columns)


def _sized() -> str:
    return "(" + " OR ".join(f"source = {source} AND op = {op}" for source, op in WITH_BYTES) + ")"


def _count_problems(work: Conversion, put: int, usable: str) -> None:
    go = work.go
    all_rows = go.number("SELECT COUNT(*) FROM events")
    dated = go.number(f"SELECT COUNT(*) FROM events WHERE {usable}")
    numbers = f"{go.whole('events', 'source')}, {go.whole('events', 'op')}"
    groups = go.rows(f"SELECT {numbers}, COUNT(*) FROM events WHERE {usable} GROUP BY 1, 2")
    unknown = sum(count for source, op, count in groups if (source, op) not in FILE_OPS)
    took = work.ns_sql("duration")
    work.problems["row_without_instant"] += all_rows - dated
    work.problems["unknown_operation"] += unknown
    work.problems["duplicate_id"] += max(0, dated - unknown - put)
    work.problems["duration_unreadable"] += go.number(
        f"SELECT COUNT(*) FROM events WHERE {usable} AND {took} IS NULL"
    )


def missing_rows(work: Conversion) -> None:
    """Rows the tool once numbered and the file no longer has."""
    number = _number_sql()
    sql = (
        f"SELECT {work.node_sql()}, MAX({number}), COUNT(*) FROM events"
        f" WHERE {number} BETWEEN 1 AND {SEQ_MASK} GROUP BY 1"
    )
    for _, highest, count in work.go.rows(sql, (work.default_node,)):
        work.problems["row_not_in_file"] += max(0, highest - count)


def windows(work: Conversion) -> None:
    """Which ids lie in which second, for quick look-ups by time; seconds without events have none."""
    for recording in work.recordings:
        first = recording.node_id << NODE_SHIFT
        work.out.execute(
            f"""
            INSERT OR REPLACE INTO window (recording_id, start_ns, end_ns, node_id, first_id, last_id)
            SELECT ?1, second, second + {SECOND}, ?2, MIN(id), MAX(id) FROM (
                SELECT id, ts_ns / {SECOND} * {SECOND} AS second FROM event WHERE id BETWEEN ?3 AND ?4
                UNION ALL
                SELECT id, (ts_ns + COALESCE(duration_ns, 0)) / {SECOND} * {SECOND} FROM event
                WHERE id BETWEEN ?3 AND ?4)
            WHERE second > ?5 - {SECOND} AND second <= ?6 GROUP BY second""",
            (
                recording.id, recording.node_id, first, first + SEQ_MASK, recording.started_ns,
                recording.last_ns,
            ),
        )  # fmt: skip


def block_seconds(work: Conversion) -> None:
    """Requests by second and issuer; the tool's own writes are not the machine's trouble."""
    for node_id in work.nodes:
        own = ", ".join(str(pid) for node, pid in sorted(work.agents) if node == node_id) or "NULL"
        first = node_id << NODE_SHIFT
        work.out.execute(
            f"""
            INSERT INTO io_second (node_id, start_ns, process_id, pid, comm_id, op_id, dev, count, bytes, ns,
                max_ns)
            SELECT node_id, ts_ns / {SECOND} * {SECOND}, process_id, pid, comm_id, op_id, 0, COUNT(*),
                SUM(COALESCE(arg1, 0)), SUM(COALESCE(duration_ns, 0)), MAX(COALESCE(duration_ns, 0))
            FROM event WHERE source = 5 AND id BETWEEN ? AND ? AND COALESCE(pid IN ({own}), 0) = 0
            GROUP BY 1, 2, 3, 4, 5, 6""",
            (first, first + SEQ_MASK),
        )


# What the operation numbers of the Go implementation mean, in our words.
#
# Functions keep the library's spelling. Its process_fork fires for threads too, and
# its process_exit for every thread, so they become `clone` and, for a thread that is
# not the main one, `thread_exit`: neither may pass for a process that came or went.
# Instants of switches, block requests and socket calls are their end (seen in the
# recordings: taken as begin, intervals of one thread overlap), those of library calls
# their begin.


THREAD_EXIT = 106  # made up here: process_exit of a thread
TASK_EXIT = 107  # and the two together, as aggregates count them
SWITCH, WAKEUP, PAGE_ALLOC, OOM, EXEC, EXIT, CLONE = range(1, 8)
READ = 1


@dataclass(frozen=True, slots=True)
class GoOperation:
    source: Source
    op: int
    layer: str
    name: str
    kind: str = "other"
    bytes_known: bool = False  # arg0 is a number of bytes


def _runtime(op: int, name: str, kind: str, bytes_known: bool = False) -> GoOperation:
    return GoOperation(Source.RUNTIME, op, "runtime", name, kind, bytes_known)


def _driver(op: int, name: str, kind: str, bytes_known: bool = False) -> GoOperation:
    return GoOperation(Source.DRIVER, op, "driver", name, kind, bytes_known)


def _host(op: int, name: str, bytes_known: bool = False) -> GoOperation:
    return GoOperation(Source.HOST, op, "host", name, "other", bytes_known)


ALL: tuple[GoOperation, ...] = (
    _runtime(1, "cudaMalloc", "alloc", True),
    _runtime(2, "cudaFree", "free"),
    _runtime(3, "cudaLaunchKernel", "launch"),
    _runtime(4, "cudaMemcpy", "copy", True),
    _runtime(5, "cudaStreamSynchronize", "sync"),
    _runtime(6, "cudaDeviceSynchronize", "sync"),
    _runtime(7, "cudaMemcpyAsync", "copy", True),
    _runtime(8, "cudaMallocManaged", "alloc", True),
    _runtime(9, "cudaMemcpy2D", "copy"),  # its arg0 is the width alone
    _runtime(10, "cudaMemcpy2DAsync", "copy"),
    _runtime(11, "cudaMemcpyPeer", "copy", True),
    _runtime(12, "cudaMemcpyPeerAsync", "copy", True),
    _driver(1, "cuLaunchKernel", "launch"),
    _driver(2, "cuMemcpy", "copy", True),
    _driver(3, "cuMemcpyAsync", "copy", True),
    _driver(4, "cuCtxSynchronize", "sync"),
    _driver(5, "cuMemAlloc", "alloc", True),
    _driver(6, "cuMemAllocManaged", "alloc", True),
    _host(SWITCH, "sched_switch"),
    _host(WAKEUP, "sched_wakeup"),
    _host(PAGE_ALLOC, "mm_page_alloc", True),
    _host(OOM, "oom_kill"),
    _host(EXEC, "exec"),
    _host(EXIT, "exit"),
    _host(THREAD_EXIT, "thread_exit"),
    _host(TASK_EXIT, "task_exit"),
    _host(CLONE, "clone"),
    _host(10, "pod_restart"),
    _host(11, "pod_eviction"),
    _host(12, "pod_oom_kill"),
    _host(20, "mm_page_alloc_summary", True),
    _host(21, "sched_switch_summary"),
    GoOperation(Source.BLOCK_IO, READ, "block", "read"),
    GoOperation(Source.BLOCK_IO, 2, "block", "write"),
    GoOperation(Source.BLOCK_IO, 3, "block", "discard"),
    GoOperation(Source.TCP, 1, "tcp", "retransmit"),
    GoOperation(Source.SOCKET, 1, "socket", "sendto"),
    GoOperation(Source.SOCKET, 2, "socket", "recvfrom"),
    GoOperation(Source.GRAPH, 1, "graph", "cudaStreamBeginCapture", "graph"),
    GoOperation(Source.GRAPH, 2, "graph", "cudaStreamEndCapture", "graph"),
    GoOperation(Source.GRAPH, 3, "graph", "cudaGraphInstantiate", "graph"),
    GoOperation(Source.GRAPH, 4, "graph", "cudaGraphLaunch", "graph"),
)
CALLS = "(1, 4, 8)"  # sources of library calls, as SQL
FILE_OPS = frozenset((int(o.source), o.op) for o in ALL if o.op < THREAD_EXIT)  # as files number them
WITH_BYTES = tuple((int(o.source), o.op) for o in ALL if o.bytes_known)
