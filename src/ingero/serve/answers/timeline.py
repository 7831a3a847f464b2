"""A recording as a timeline: calls, states, findings, collectives and counters on their tracks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from ingero.errors import StoreError
from ingero.model.finding import Finding, Who
from ingero.model.layout import WakerKind
from ingero.serve.answers.diagnosis import diagnosed
from ingero.serve.answers.query import Range
from ingero.serve.answers.shares import who_counts
from ingero.serve.answers.timeline_events import (
    Row,
    TimelineQuestion,
    calls,
    card_counters,
    counters,
    labels,
    moments,
    requests,
    tidy,
)
from ingero.serve.answers.tracks import EVENT, Arguments, Item, Lanes, Moment, Slice
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store import opening
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS, SEQ_MASK
from ingero.units import clean, format_share


def states(asked: TimelineQuestion) -> Iterator[Item]:
    """What each thread waited for, where that was stored wait by wait."""
    rows = asked.rows(
        "SELECT e.node_id, e.process_id, e.pid, e.tid, c.text, e.ts_ns, e.duration_ns, e.op_id, e.id,"
        " w.runqueue_ns, w.waker_kind, w.waker_pid, w.waker_tid, k.text, w.call_op_id, w.throttled, w.gil,"
        " w.holder_tid, e.stack_hash"
        " FROM event e LEFT JOIN wait_detail w ON w.event_id = e.id"
        " LEFT JOIN string c ON c.id = e.comm_id LEFT JOIN string k ON k.id = w.waker_id"
        f" WHERE {asked.events('host')}"
        " ORDER BY e.node_id, e.process_id, e.pid, e.tid, e.ts_ns, e.id"
    )
    for who, group in groupby(rows, key=lambda row: row[:4]):
        first = next(group)
        lane = asked.tracks.lane(asked.thread(who, first[4]), "states", 1).id
        reached = 0
        for row in chain([first], group):
            start = max(row[5], reached)  # a thread is in one state at a time
            reached = max(start, row[5] + row[6])
            yield from _state(asked, lane, start, reached, row)


def wakes(asked: TimelineQuestion) -> Iterator[Item]:
    """The other end of each arrow: who woke a waiting thread, and when."""
    at = "e.ts_ns + e.duration_ns - MIN(COALESCE(w.runqueue_ns, 0), e.duration_ns)"
    rows = asked.rows(
        f"SELECT e.node_id, w.waker_pid, w.waker_tid, {at} AS at, k.text, e.id, e.pid, e.tid, c.text"
        " FROM event e JOIN wait_detail w ON w.event_id = e.id"
        " LEFT JOIN string c ON c.id = e.comm_id LEFT JOIN string k ON k.id = w.waker_id"
        f" WHERE {asked.events('host')} AND w.waker_kind = {WOKEN_BY_TASK}"
        " AND w.waker_tid IS NOT NULL ORDER BY e.node_id, w.waker_pid, w.waker_tid, at, e.id"
    )
    for (node_id, pid, tid), group in groupby(rows, key=lambda row: row[:3]):
        lane = 0
        for _, _, _, at_ns, comm, number, victim_pid, victim_tid, victim in group:
            if not lane:
                process = asked.tracks.process(node_id, asked.process_at(node_id, pid, at_ns), pid, comm)
                lane = asked.tracks.lane(asked.tracks.thread(process, tid, comm), "wakes", 2).id
            yield Moment(
                lane, at_ns, f"wakes {tidy(victim or '?', 64)}", "wake",
                (("pid", victim_pid or 0), ("tid", victim_tid or 0)), flows_out=(number,),
            )  # fmt: skip


def accounted(asked: TimelineQuestion) -> Iterator[Item]:
    """Second by second, where all of a thread's time went; named after what took most."""
    rows = asked.rows(
        f"SELECT t.node_id, t.process_id, t.pid, t.tid, c.text, t.start_ns, {', '.join(BUCKET_COLUMNS)}"
        " FROM thread_second t LEFT JOIN string c ON c.id = t.comm_id"
        f" WHERE t.start_ns >= ? AND t.start_ns < ?{asked.of_process('t')}"
        " ORDER BY t.node_id, t.process_id, t.pid, t.tid, t.start_ns, t.id",
        asked.between,
    )
    for who, group in groupby(rows, key=lambda row: row[:4]):
        lane, reached = 0, 0
        for _, _, _, _, comm, start, *ns in group:
            lane = lane or asked.tracks.lane(asked.thread(who, comm), "accounted time, by second", 3).id
            start = max(start, reached)
            reached = start + sum(ns)
            if reached > start:
                yield Slice(lane, start, reached, _BUCKETS[ns.index(max(ns))], "accounted", _known(ns))


def findings(asked: TimelineQuestion) -> Iterator[Item]:
    """On lanes of the machine, as `explain` has them."""
    pid, tracks = asked.pid, asked.tracks
    diagnosis = diagnosed(asked.reader, asked.when)
    found = [each for each in diagnosis.findings if pid is None or each.victim.pid == pid]
    node_ids = {name: number for number, name in asked.reader.rows("SELECT id, name FROM node")}
    yield from _culprits(asked, found, node_ids)
    episodes = [
        (start, end, number, finding)
        for number, finding in enumerate(found)
        for start, end in (finding.episodes or [(finding.first_ns, finding.last_ns)])
    ]
    lanes: dict[str, Lanes] = {}
    begun: set[int] = set()
    for start, end, number, finding in sorted(episodes, key=lambda each: each[:3]):
        lane = lanes.setdefault(finding.node, Lanes()).take(start, end)
        machine = tracks.machine(node_ids.get(finding.node, 0))
        track = tracks.lane(machine, f"findings {lane + 1}" if lane else "findings", lane - 100)
        flows = () if number in begun else _flows(number, finding)
        begun.add(number)
        name = f"{finding.severity.value}: {clean(finding.title, 200)}"
        yield Slice(track.id, start, max(start, end), name, finding.severity.value, _about(finding), flows)


def collectives(asked: TimelineQuestion) -> Iterator[Item]:
    """From a rank's arrival to the last rank's, where all were seen."""
    rows = asked.rows(
        "SELECT c.comm_hash, c.rank, n.name, e.ts_ns, e.duration_ns, e.op_id, c.seq, e.bytes, e.id,"
        " CASE WHEN r.seen = r.nranks AND r.rank_sum = r.nranks * (r.nranks - 1) / 2 THEN r.last_ns END"
        " FROM collective c JOIN event e ON e.id = c.event_id LEFT JOIN node n ON n.id = e.node_id"
        " LEFT JOIN collective_round r"
        " ON r.comm_hash = c.comm_hash AND r.seq = c.seq AND r.op_id = e.op_id"
        " WHERE c.comm_hash IS NOT NULL AND c.seq IS NOT NULL AND c.rank IS NOT NULL AND c.peer IS NULL"
        f" AND e.ts_ns >= ? AND e.ts_ns < ?{asked.of_process('e')}"
        " ORDER BY c.comm_hash, c.rank, e.ts_ns, e.id",
        asked.between,
    )
    for (comm, rank, node), group in groupby(rows, key=lambda row: row[:3]):
        lanes = Lanes()
        label = f"{comm & (1 << 64) - 1:016x} rank {rank:4} {clean(node or '?', 128)}"
        for _, _, _, at_ns, took, op, seq, size, _, last in group:
            end = last if last is not None and last > at_ns else at_ns + (took or 0)
            lane = lanes.take(at_ns, end)
            track = asked.tracks.lane(
                asked.tracks.collectives(), f"{label}{'' if not lane else f' +{lane}'}", rank
            )
            yield _arrival(track.id, at_ns, end, f"{asked.ops[op][1]} #{seq}", last, size)


WOKEN_BY_TASK = int(WakerKind.WAKER_TASK)
_BUCKETS = tuple(column.removesuffix("_ns") for column in BUCKET_COLUMNS)


def _state(asked: TimelineQuestion, lane: int, start: int, end: int, row: Row) -> Iterator[Item]:
    op, number, runqueue, kind, waker_pid, waker_tid, waker, call_op, *more = row[7:]
    throttled, gil, holder, stack = more
    found: list[tuple[str, Any]] = [(EVENT, number & SEQ_MASK)]
    if runqueue:
        found.append(("of it waiting for a core, ns", runqueue))
    if call_op in asked.ops:
        found.append(("inside", asked.ops[call_op][1]))
    if throttled:
        found.append(("throttled", "CPU quota"))
    if gil:
        found.append(("lock", "GIL"))
    if holder:
        found.append(("lock held by thread", holder))
    if stack and (text := asked.stack(stack)):
        found.append(("stack", text))
    yield Slice(lane, start, end, asked.ops[op][1], "state", tuple(found))
    if kind == WOKEN_BY_TASK and waker_tid is not None:
        at = min(max(end - (runqueue or 0), start), end)
        name = f"woken by {tidy(waker or '?', 64)}"
        yield Moment(
            lane, at, name, "wake", (("pid", waker_pid or 0), ("tid", waker_tid)), flows_in=(number,)
        )


def _known(ns: list[int]) -> Arguments:
    return tuple((f"{name}_ns", value) for name, value in zip(_BUCKETS, ns, strict=True) if value)


FLOWS = 1 << 62  # above every event's number
SHOWN_CULPRITS = 8


def _flows(number: int, finding: Finding) -> tuple[int, ...]:
    """One arrow for each culprit."""
    return tuple(FLOWS + number * SHOWN_CULPRITS + at for at in range(len(_at_fault(finding))))


def _at_fault(finding: Finding) -> list[Who]:
    """Others than the victim itself, who took most first."""
    who = [each for cause in finding.causes for each in cause.who] or finding.who
    others = [each for each in who_counts(who) if each.pid is not None and each.pid != finding.victim.pid]
    return sorted(others, key=lambda each: -each.ns)[:SHOWN_CULPRITS]


def _culprits(asked: TimelineQuestion, found: list[Finding], node_ids: dict[str, int]) -> Iterator[Item]:
    """The begin of each arrow, on the process at fault."""
    marks = [
        (finding.episodes[0][0] if finding.episodes else finding.first_ns, flow, finding, who)
        for number, finding in enumerate(found)
        for flow, who in zip(_flows(number, finding), _at_fault(finding), strict=True)
    ]
    for at_ns, flow, finding, who in sorted(marks, key=lambda mark: mark[:2]):
        node_id = node_ids.get(finding.node, 0)
        process = asked.tracks.process(node_id, asked.process_at(node_id, who.pid, at_ns), who.pid, who.comm)
        name = f"{finding.kind}: {clean(finding.victim.comm, 64)}"
        about = (("victim_pid", finding.victim.pid),)
        yield Moment(
            asked.tracks.lane(process, "at fault").id, at_ns, name, "cause", about, flows_out=(flow,)
        )


def _about(finding: Finding) -> Arguments:
    victim = finding.victim
    found: list[tuple[str, int | float | str]] = [
        ("kind", finding.kind),
        ("victim", f"{clean(victim.comm, 64)} ({victim.pid})"),
        ("confidence", finding.confidence),
    ]
    if finding.effect.wall_share is not None:
        found.append(("wall_share", finding.effect.wall_share))
    for number, cause in enumerate(finding.causes):
        proof = f": {clean(cause.evidence[0].text, 400)}" if cause.evidence else ""
        found.append((f"cause {number + 1}", f"{format_share(cause.share)} {cause.bucket}{proof}"))
    found += [(f"fix {number + 1}", clean(fix.text, 400)) for number, fix in enumerate(finding.fix)]
    if finding.source is not None:
        found.append(("line", f"{clean(finding.source.file, 300)}:{finding.source.line}"))
    return tuple(found)


def _arrival(track: int, at_ns: int, end: int, name: str, last: int | None, size: int | None) -> Slice:
    found: list[tuple[str, Any]] = [] if size is None else [("bytes", size)]
    if last is None:
        found.append(("note", "not all ranks were seen"))
    else:
        found.append(("waited for the last rank, ns", max(0, last - at_ns)))
    return Slice(track, at_ns, end, name, "collective", tuple(found))


# A recording as a timeline: calls, states, findings and counters on their tracks.
#
# What overlaps the time asked for is in it. One track is read after the other, so
# memory stays small however long the recording is.


PARTS: tuple[Callable[[TimelineQuestion], Iterator[Item]], ...] = (
    findings, labels, counters, card_counters, calls, states, wakes, accounted, collectives, moments,
    requests,
)  # fmt: skip


def timeline(asked: TimelineQuestion) -> Iterator[Item]:
    """Every item, each track before what is drawn on it."""
    try:
        for part in PARTS:
            for item in part(asked):
                if asked.tracks.new:
                    yield from asked.tracks.taken()
                yield item
    except sqlite3.Error as error:
        raise opening.opening_error(asked.reader.path, error) from error
    except (TypeError, ValueError, OverflowError, LookupError) as error:  # SQLite takes text for a number
        raise StoreError(
            f"{asked.reader.path} holds values that cannot be right: {error}", hint="The file is damaged."
        ) from error


@contextmanager
def open_timeline(
    db: Path | None, wanted: Range, pid: int | None = None, node: str | None = None
) -> Iterator[tuple[TimeRange, Iterator[Item]]]:
    """The timeline of a recording; of one process or one node where asked for."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        reader.connection.execute("PRAGMA temp_store = FILE")  # sorts of any size
        yield when, timeline(TimelineQuestion(reader, when, pid))
