"""Where in its code a process spends time: the lines that cost most, and its longest single waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from ingero.correlate.activity import Place, places
from ingero.model.layout import Bucket, SampleFlag
from ingero.model.report import CodeLine, Stall
from ingero.model.sites import SAMPLE_NS, Sites
from ingero.model.window import BUCKET_NAMES, Records
from ingero.model.words import bucket_words
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.sites import SiteReader
from ingero.units import SECOND, clean, format_ns

# Which lines of a process cost most: where calls come from, where host time goes, what is waited for.
#
# Sums per stack become sums per line (correlate/activity.py says which line of a stack is the
# user's). Of each operation, thread and bucket only the heaviest lines are told.

PER_GROUP = 5  # lines of one operation, thread or bucket
OPERATIONS = 12  # of one process, those with most time
THREADS = 8
LEAST_SHARE = 0.01  # of its operation or thread
_OPS = "SELECT id, name FROM op"


def process_lines(reader: Reader, wanted: TimeRange) -> dict[int, list[CodeLine]]:
    """By PID: calls, then time on a core, waits and holders of the interpreter's lock."""
    ops: dict[int, str] = dict(reader.rows(_OPS))
    found: dict[int, list[CodeLine]] = defaultdict(list)
    for node_id in sorted({each.node_id for each in reader.recordings()}):
        sites = SiteReader(reader.connection, node_id)
        for pid, lines in lines_by_process(sites, ops, wanted.from_ns, wanted.to_ns):
            found[pid].extend(lines)
    return dict(found)


def lines_by_process(
    sites: Sites, ops: Mapping[int, str], from_ns: int, to_ns: int
) -> Iterator[tuple[int, list[CodeLine]]]:
    calls, waits, samples = (ask(None, from_ns, to_ns) for ask in (sites.calls, sites.waits, sites.samples))
    pids = {
        int(pid) for rows in (calls, waits, samples) for pid in np.unique(rows["pid"][rows["stack"] != 0])
    }
    for pid in sorted(pids):
        mine = (rows[rows["pid"] == pid] for rows in (calls, waits, samples))
        yield pid, list(_lines(sites, ops, *mine))


def _lines(
    sites: Sites, ops: Mapping[int, str], calls: Records, waits: Records, samples: Records
) -> Iterator[CodeLine]:
    yield from _calls(sites, ops, calls)
    yield from _on_core(sites, samples)
    yield from _waits(sites, waits)
    yield from _holders(sites, waits, samples)


def _heaviest_groups(rows: Records, key: str, weight: str, most: int) -> list[tuple[int, Records]]:
    groups = [(int(value), rows[rows[key] == value]) for value in np.unique(rows[key])]
    return sorted(groups, key=lambda group: (-float(group[1][weight].sum()), group[0]))[:most]


def _worth(sites: Sites, rows: Records, weight: str) -> list[Place]:
    found = places(sites, _sums(rows, weight))
    return [each for each in found[:PER_GROUP] if each.share >= LEAST_SHARE]


def _sums(rows: Records, column: str) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for stack, value in zip(rows["stack"].tolist(), rows[column].tolist(), strict=True):
        sums[stack] += value
    return sums


def _of_line(rows: Records, place: Place) -> Records:
    return rows[np.isin(rows["stack"], place.stacks)]


def _line(what: str, place: Place, ns: float, count: float) -> CodeLine:
    source = place.source
    inner = next((each.function for each in place.stack if each.function), "?")
    return CodeLine(
        what,
        source.file if source else None,
        source.line if source else None,
        source.function if source else inner,
        round(ns),
        round(count),
        place.share,
        stack_hash=place.stacks[0],
    )


def _calls(sites: Sites, ops: Mapping[int, str], calls: Records) -> Iterator[CodeLine]:
    for op, rows in _heaviest_groups(calls, "op", "ns", OPERATIONS):
        for place in _worth(sites, rows, "ns" if rows["ns"].any() else "count"):
            mine = _of_line(rows, place)
            size = round(mine["bytes"].sum())
            line = _line("call", place, mine["ns"].sum(), mine["count"].sum())
            yield replace(line, op=ops.get(op, "?"), bytes=size or None)


def _on_core(sites: Sites, samples: Records) -> Iterator[CodeLine]:
    """Time on a core outside CUDA calls: those are told as calls, and spinning in one is waiting."""
    collecting = int(SampleFlag.SAMPLE_COLLECTING)
    samples = samples[samples["bucket"] == int(Bucket.HOST_CPU)]
    for tid, rows in _heaviest_groups(samples, "tid", "count", THREADS):
        for place in _worth(sites, rows, "count"):
            mine = _of_line(rows, place)
            count = float(mine["count"].sum())
            in_collector = float(mine["count"][mine["flags"] & collecting > 0].sum())
            line = _line("cpu", place, count * SAMPLE_NS, count)
            yield replace(line, tid=tid, collecting_share=round(in_collector / count, 4))


def _waits(sites: Sites, waits: Records) -> Iterator[CodeLine]:
    for tid, of_thread in _heaviest_groups(waits, "tid", "ns", THREADS):
        known = of_thread[(of_thread["bucket"] >= 0) & (of_thread["bucket"] < len(BUCKET_NAMES))]
        for bucket, rows in _heaviest_groups(known, "bucket", "ns", len(BUCKET_NAMES)):
            for place in _worth(sites, rows, "ns"):
                mine = _of_line(rows, place)
                line = _line("wait", place, mine["ns"].sum(), mine["count"].sum())
                yield replace(line, tid=tid, bucket=BUCKET_NAMES[bucket])


def _holders(sites: Sites, waits: Records, samples: Records) -> Iterator[CodeLine]:
    """Threads that others waited for with the interpreter's lock, and where they were seen with it."""
    held = waits[(waits["gil"] > 0) & (waits["holder_tid"] > 0)]
    for tid, rows in _heaviest_groups(held, "holder_tid", "ns", THREADS):
        theirs = samples[samples["tid"] == tid]
        holding = theirs[theirs["flags"] & int(SampleFlag.SAMPLE_GIL) > 0]
        seen = holding if len(holding) else theirs
        for place in _worth(sites, seen, "count"):
            count = float(_of_line(seen, place)["count"].sum())
            line = _line("gil", place, count * SAMPLE_NS, count)
            yield replace(line, tid=tid, bucket="lock_wait", held_ns=round(rows["ns"].sum()))


# The longest single wait of each process, and why it waited.
#
# Waiting for the GPU is what a healthy job does, and sleep is wanted: neither is a
# stall. Where a process has threads that feed the GPU, only theirs count: a helper
# thread that idles for a minute stalls nobody.


NO_STALL = ("gpu_wait", "sleep")
WORTH_SAYING = 0.05  # of the wait: what it waited for a core at its end
_WAKERS = {2: "a timer", 3: "the disk", 4: "the network", 5: "an interrupt"}
# One pass over the events finds the longest of each thread; only those are looked up in detail.
_LONGEST = """
    SELECT e.process_id, e.tid, e.ts_ns, e.duration_ns, w.bucket, w.runqueue_ns, w.waker_kind,
        w.waker_pid, s.text, o.name, w.throttled
    FROM (
        SELECT id, MAX(duration_ns) FROM event
        WHERE id BETWEEN ? AND ? AND ts_ns >= ? AND ts_ns < ? AND op_id IN (@OPS@)
        GROUP BY process_id, tid
    ) longest
    CROSS JOIN event e ON e.id = longest.id
    CROSS JOIN wait_detail w ON w.event_id = e.id
    LEFT JOIN string s ON s.id = w.waker_id
    LEFT JOIN op o ON o.id = w.call_op_id"""
_WAIT_OPS = "SELECT id, name FROM op WHERE layer = 'host'"
_HUNG = """
    SELECT f.process_id, f.tid, f.since_ns, f.last_seen_ns - f.since_ns, f.bucket, o.name
    FROM in_flight f
    JOIN op o ON o.id = f.op_id
    WHERE f.last_seen_ns >= ? AND f.since_ns < ? AND f.last_seen_ns - f.since_ns >= ?"""
_RAN = """
    SELECT s.text, c.pid, SUM(c.ns)
    FROM culprit c
    LEFT JOIN string s ON s.id = c.comm_id
    WHERE c.start_ns > ? AND c.start_ns <= ? AND c.victim_tid = ? AND c.throttled = 0
    GROUP BY c.pid, c.comm_id ORDER BY 3 DESC LIMIT 2"""


def worst_stalls(
    reader: Reader, wanted: TimeRange, feeders: Mapping[int, frozenset[int]]
) -> dict[int, Stall]:
    """By process; `feeders` are each process's threads that feed the GPU."""
    found: dict[int, tuple[int, Any]] = {}
    for process_id, tid, stall in [*_long_waits(reader, wanted), *_hung(reader, wanted)]:
        own = feeders.get(process_id)
        if (not own or tid in own) and (process_id not in found or stall.ns > found[process_id][1].ns):
            found[process_id] = (tid, stall)
    return {process_id: _with_culprits(reader, tid, stall) for process_id, (tid, stall) in found.items()}


def _long_waits(reader: Reader, wanted: TimeRange) -> list[tuple[int, int, Stall]]:
    stalls = set(BUCKET_NAMES) - set(NO_STALL)
    ops = ", ".join(str(number) for number, name in reader.rows(_WAIT_OPS) if name in stalls)
    sql = _LONGEST.replace("@OPS@", ops)
    rows = [
        row
        for first, last in reader.id_ranges(wanted.from_ns, wanted.to_ns)
        for row in reader.rows(sql, (first, last, wanted.from_ns, wanted.to_ns))
    ]
    return [
        (row[0], row[1], Stall(row[2], row[3], _bucket(row[4]), _why(row)))
        for row in rows
        if row[0] is not None and row[3] is not None
    ]


def _why(row: tuple[Any, ...]) -> str:
    _, _, _, ns, bucket, runqueue_ns, waker_kind, waker_pid, waker, call, throttled = row
    words = bucket_words(_bucket(bucket)) + (f" inside {clean(call)}" if call else "")
    if throttled:
        words += ", held back by its CPU quota"
    if waker_kind in _WAKERS:
        words += f"; {_WAKERS[waker_kind]} ended it"
    elif waker is not None and waker_pid:
        how = "released it" if _bucket(bucket) == "lock_wait" else "ended it"
        words += f"; {clean(waker, 40)} ({waker_pid}) {how}"
    if runqueue_ns and WORTH_SAYING * ns <= runqueue_ns < ns:
        words += f", then it waited {format_ns(runqueue_ns)} for a core"
    return words


def _hung(reader: Reader, wanted: TimeRange) -> list[tuple[int, int, Stall]]:
    """Calls that had not returned when last looked at."""
    rows = reader.rows(_HUNG, (wanted.from_ns, wanted.to_ns, SECOND))
    return [
        (
            process_id,
            tid,
            Stall(
                since_ns, ns, _bucket(bucket), f"{bucket_words(_bucket(bucket))} in {clean(op)}, not returned"
            ),
        )
        for process_id, tid, since_ns, ns, bucket, op in rows
        if process_id is not None
    ]


def _with_culprits(reader: Reader, tid: int, stall: Stall) -> Stall:
    if stall.bucket != "runqueue":
        return stall
    # Culprits are kept by the second: those of the seconds the wait lay in.
    rows = reader.rows(_RAN, (stall.at_ns - SECOND, stall.at_ns + stall.ns, tid))
    ran = " and ".join(f"{clean(comm or '?', 40)} ({pid})" for comm, pid, _ in rows if pid)
    return Stall(stall.at_ns, stall.ns, stall.bucket, f"{stall.text}, while {ran} ran") if ran else stall


def _bucket(number: int) -> str:
    return BUCKET_NAMES[number] if 0 <= number < len(BUCKET_NAMES) else "unexplained"
