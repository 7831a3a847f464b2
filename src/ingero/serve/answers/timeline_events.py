"""Events on the timeline: which lie in the time asked for, calls of each thread, labels, and what belongs
to the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby
from typing import Any

from ingero.serve.answers.tracks import EVENT, Item, Lanes, Moment, Sample, Slice, Track, Tracks, nested
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.schema import NODE_SHIFT, SEQ_MASK
from ingero.units import clean

# The rows a timeline is made from: which events lie in the time asked for.
#
# SQLite sorts, so that one track is read after the other and memory stays small
# however long the recording is.

FETCH = 5_000
STACK_FRAMES, MOST_STACKS, MOST_KERNELS = 64, 20_000, 20_000
Row = tuple[Any, ...]
Who = tuple[Any, ...]  # node, row of the process, PID, TID
tidy = lru_cache(maxsize=10_000)(clean)  # the same few names come again and again


@dataclass(slots=True)
class TimelineQuestion:
    """What a timeline is of, and the tracks it has so far."""

    reader: Reader
    when: TimeRange
    pid: int | None = None
    processes: tuple[int, ...] | None = None  # their ids; None: all of them
    tracks: Tracks = field(init=False)
    ops: dict[int, tuple[str, str]] = field(init=False)  # layer, name
    _stacks: dict[int, str] = field(default_factory=dict)
    _kernels: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tracks = Tracks(self.reader)
        rows = self.reader.rows("SELECT id, layer, name FROM op")
        self.ops = {number: (str(layer), clean(str(name), 200)) for number, layer, name in rows}

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[Row]:
        cursor = self.reader.connection.execute(sql, parameters)
        while rows := cursor.fetchmany(FETCH):
            yield from rows

    def events(self, *layers: str, lasting: bool = True) -> str:
        """SQL that is true for events `e` of some layers that overlap the time asked for."""
        numbers = ", ".join(str(number) for number, (layer, _) in self.ops.items() if layer in layers)
        firsts = self.reader.rows(
            "SELECT node_id, MIN(first_id) FROM window WHERE end_ns > ? AND start_ns < ? GROUP BY node_id",
            (self.when.from_ns, self.when.to_ns),
        )  # there is no last one: a call is stored when it returns
        ids = [f"e.id BETWEEN {first} AND {((node + 1) << NODE_SHIFT) - 1}" for node, first in firsts]
        ended = f"e.ts_ns + COALESCE(e.duration_ns, 0) >= {self.when.from_ns}"
        length = f"e.duration_ns IS {'NOT ' if lasting else ''}NULL"
        place = f"({' OR '.join(ids) or 'false'}) AND e.op_id IN ({numbers})"
        return f"{place} AND {length} AND e.ts_ns < {self.when.to_ns} AND {ended}{self.of_process('e')}"

    def stack(self, stack_hash: int) -> str:
        """The frames of a stack, the innermost first; empty where nothing is known of it."""
        text = self._stacks.get(stack_hash)
        if text is None:
            rows = self.reader.rows(
                "SELECT function, file, line, module FROM stacks WHERE stack_hash = ? ORDER BY depth LIMIT ?",
                (stack_hash, STACK_FRAMES),
            )
            text = "\n".join(_frame(*row) for row in rows)
            if len(self._stacks) < MOST_STACKS:
                self._stacks[stack_hash] = text
        return text

    def kernel(self, kernel_id: int) -> str:
        """What a kernel is called; empty where it has no name."""
        text = self._kernels.get(kernel_id)
        if text is None:
            rows = self.reader.rows("SELECT name FROM kernel WHERE id = ?", (kernel_id,))
            text = clean(str(rows[0][0]), 1000) if rows else ""
            if len(self._kernels) < MOST_KERNELS:
                self._kernels[kernel_id] = text
        return text

    def of_process(self, table: str) -> str:
        of_pid = "" if self.pid is None else f" AND {table}.pid = {self.pid}"
        if self.processes is None:
            return of_pid
        return f"{of_pid} AND {table}.process_id IN ({', '.join(map(str, self.processes))})"

    @property
    def between(self) -> tuple[int, int]:
        return self.when.from_ns, self.when.to_ns

    def thread(self, who: Who, comm: str | None) -> Track:
        node_id, process_id, pid, tid = who
        return self.tracks.thread(self.tracks.process(node_id, process_id, pid, comm), tid, comm)

    def process_at(self, node_id: int, pid: int | None, at_ns: int) -> int | None:
        """The row of the process that had a PID at an instant."""
        begun = "COALESCE(start_ns, first_seen_ns, 0)"
        rows = self.reader.rows(
            f"SELECT id FROM process WHERE node_id = ? AND pid = ? AND {begun} <= ?"
            f" ORDER BY {begun} DESC LIMIT 1",
            (node_id, pid or 0, at_ns),
        )
        return rows[0][0] if rows else None


def _frame(function: str | None, file: str | None, line: int | None, module: str | None) -> str:
    place = f"{file}:{line}" if file and line else file or module
    return clean(f"{function or '?'} ({place})" if place else function or "?", 300)


# Calls on the timeline: a track for each thread, with what was passed and what came back.


DIRECTIONS = ("HtoH", "HtoD", "DtoH", "DtoD")
CALL_LAYERS = ("runtime", "driver", "graph", "nccl", "python", "socket")


def calls(asked: TimelineQuestion) -> Iterator[Item]:
    """Calls of each thread, one thread after the other."""
    rows = asked.rows(
        "SELECT e.node_id, e.process_id, e.pid, e.tid, c.text, e.ts_ns, e.duration_ns, e.op_id, e.id,"
        " e.bytes, e.direction, e.stream, e.ret, e.gpu_id, e.weight, e.kernel_id, e.stack_hash FROM event e"
        " LEFT JOIN string c ON c.id = e.comm_id"
        f" WHERE {asked.events(*CALL_LAYERS)}"
        " ORDER BY e.node_id, e.process_id, e.pid, e.tid, e.ts_ns, e.duration_ns DESC, e.depth, e.id"
    )
    for who, group in groupby(rows, key=lambda row: row[:4]):
        first = next(group)
        track = asked.thread(who, first[4]).id
        yield from nested(_call(asked, track, row) for row in chain([first], group))


def _call(asked: TimelineQuestion, track: int, row: Row) -> Slice:
    start, took, op, number, size, direction, stream, ret, gpu, weight, kernel, stack = row[5:]
    found: list[tuple[str, Any]] = [(EVENT, number & SEQ_MASK)]
    if size is not None:
        found.append(("bytes", size))
    if direction is not None and 0 <= direction < 4:
        found.append(("direction", DIRECTIONS[direction]))
    if stream is not None:
        found.append(("stream", stream))
    if ret is not None:
        found.append(("ret", ret))
    if gpu is not None:
        found.append(("gpu_id", gpu))
    if weight != 1:
        found.append(("stands_for_calls", weight))
    if kernel and (name := asked.kernel(kernel)):
        found.append(("kernel_name", name))
    if stack and (text := asked.stack(stack)):
        found.append(("stack", text))
    layer, name = asked.ops[op]
    return Slice(track, start, start + took, name, layer, tuple(found))


# What jobs said they were doing, on the timeline: a lane of each process and key.


END = "COALESCE(a.end_ns, MAX(a.start_ns, MIN(COALESCE(p.end_ns, r.last_ns), r.last_ns)))"


def labels(asked: TimelineQuestion) -> Iterator[Item]:
    """Each value as long as it held."""
    rows = asked.rows(
        f"SELECT a.node_id, a.process_id, a.pid, k.text, a.start_ns, {END} AS until_ns, a.value"
        " FROM annotation a LEFT JOIN string k ON k.id = a.key_id"
        " LEFT JOIN process p ON p.id = a.process_id LEFT JOIN recording r ON r.id = a.recording_id"
        f" WHERE {END} >= ? AND a.start_ns < ?{asked.of_process('a')}"
        " ORDER BY a.node_id, a.process_id, a.pid, k.text, a.start_ns, a.id",
        asked.between,
    )
    for (node_id, process_id, pid, key), group in groupby(rows, key=lambda row: row[:4]):
        name = tidy(str(key or "?"), 64)
        lane = asked.tracks.lane(asked.tracks.process(node_id, process_id, pid), name, -10).id
        reached = 0
        for *_, start_ns, end_ns, value in group:
            start_ns = max(start_ns, reached)
            reached = max(start_ns, end_ns)
            yield Slice(lane, start_ns, reached, f"{name} {tidy(str(value), 128)}", "label")


# What belongs to a machine rather than to one thread: counters, moments, disk requests.


# Column of system_sample, its name on the timeline, unit.
COUNTERS = (
    ("cpu_share", "CPU", "share"),
    ("memory_share", "memory", "share"),
    ("memory_available_bytes", "memory available", "bytes"),
    ("load1", "load", "threads"),
    ("swap_bytes", "swap", "bytes"),
    ("psi_cpu_some", "pressure: CPU", "share"),
    ("psi_memory_some", "pressure: memory", "share"),
    ("psi_io_some", "pressure: I/O", "share"),
)
# Column of gpu_sample, its name behind the card's, unit.
CARD_COUNTERS = (
    ("gpu_share", "busy", "share"),
    ("memory_busy_share", "memory busy", "share"),
    ("memory_used_bytes", "memory", "bytes"),
    ("sm_clock_mhz", "SM clock", "MHz"),
    ("memory_clock_mhz", "memory clock", "MHz"),
    ("power_mw", "power", "mW"),
    ("temperature_c", "temperature", "°C"),
    ("pcie_rx_bytes_per_s", "PCIe to it", "bytes/s"),
    ("pcie_tx_bytes_per_s", "PCIe from it", "bytes/s"),
    ("reasons", "clock reasons", "bits"),
)


def counters(asked: TimelineQuestion) -> Iterator[Item]:
    columns = ", ".join(column for column, _, _ in COUNTERS)
    rows = asked.rows(
        f"SELECT node_id, at_ns, {columns} FROM system_sample WHERE at_ns >= ? AND at_ns < ? ORDER BY at_ns",
        asked.between,
    )
    for node_id, at_ns, *values in rows:
        parent = asked.tracks.machine(node_id)
        for (_, name, unit), value in zip(COUNTERS, values, strict=True):
            if value is not None:
                yield Sample(asked.tracks.counter(parent, name, unit).id, at_ns, value)


def card_counters(asked: TimelineQuestion) -> Iterator[Item]:
    """Each card's own, under its machine."""
    columns = ", ".join(column for column, _, _ in CARD_COUNTERS)
    rows = asked.rows(
        f"SELECT node_id, at_ns, gpu_id, {columns} FROM gpu_sample WHERE at_ns >= ? AND at_ns < ?"
        " ORDER BY at_ns",
        asked.between,
    )
    for node_id, at_ns, gpu_id, *values in rows:
        parent = asked.tracks.machine(node_id)
        for (_, name, unit), value in zip(CARD_COUNTERS, values, strict=True):
            if value is not None:
                yield Sample(asked.tracks.counter(parent, f"GPU {gpu_id}: {name}", unit).id, at_ns, value)


def moments(asked: TimelineQuestion) -> Iterator[Item]:
    """What has no length: processes that come and go, faults, retransmits."""
    rows = asked.rows(
        "SELECT e.node_id, e.process_id, e.pid, c.text, e.ts_ns, e.op_id, e.id, e.arg0, x.message"
        " FROM event e LEFT JOIN string c ON c.id = e.comm_id LEFT JOIN xid_detail x ON x.event_id = e.id"
        f" WHERE {asked.events(*CALL_LAYERS, 'host', 'tcp', 'block', lasting=False)}"
        " ORDER BY e.node_id, e.process_id, e.pid, e.ts_ns, e.id"
    )
    for (node_id, process_id, pid), group in groupby(rows, key=lambda row: row[:3]):
        lane = 0
        for _, _, _, comm, at_ns, op, number, argument, message in group:
            if not lane:
                owner = (
                    asked.tracks.machine(node_id)
                    if pid is None
                    else asked.tracks.process(node_id, process_id, pid, comm)
                )
                lane = asked.tracks.lane(owner, "moments").id
            found: list[tuple[str, Any]] = [(EVENT, number & SEQ_MASK)]
            if argument is not None:
                found.append(("arg0", argument))
            if message:
                found.append(("message", tidy(message, 200)))
            yield Moment(lane, at_ns, asked.ops[op][1], "host", tuple(found))


def requests(asked: TimelineQuestion) -> Iterator[Item]:
    """Block requests, which overlap: on as many lanes as were in flight at once."""
    rows = asked.rows(
        "SELECT e.node_id, d.dev, e.ts_ns, e.duration_ns, e.op_id, e.id, e.arg1, e.pid, c.text"
        " FROM event e LEFT JOIN block_detail d ON d.event_id = e.id"
        " LEFT JOIN string c ON c.id = e.comm_id"
        f" WHERE {asked.events('block')} ORDER BY e.node_id, d.dev, e.ts_ns, e.id"
    )
    for (node_id, dev), group in groupby(rows, key=lambda row: row[:2]):
        lanes, name = Lanes(), f"disk {dev >> 20}:{dev & 0xFFFFF}" if dev else "disk"
        for _, _, at_ns, took, op, number, size, pid, comm in group:
            lane = lanes.take(at_ns, at_ns + took)
            track = asked.tracks.lane(asked.tracks.machine(node_id), f"{name} {lane + 1}", lane)
            found: list[tuple[str, Any]] = [(EVENT, number & SEQ_MASK)]
            found += [] if size is None else [("bytes", size)]
            found += [] if pid is None else [("pid", pid), ("comm", tidy(comm or "?", 64))]
            yield Slice(track.id, at_ns, at_ns + took, asked.ops[op][1], "block", tuple(found))
