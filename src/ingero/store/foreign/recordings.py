"""Where and when: nodes, recordings, and the samples of the machine.

A session is a recording of ours. Samples are kept without a node: where several
nodes were merged into one file, those that fit more than one are left out.
"""

from __future__ import annotations

import json
from typing import Any

from ingero.errors import StoreError
from ingero.store.foreign.source import LATEST_NS, Conversion, GoSession
from ingero.units import clean

MAX_NODES = 10_000
MIB = 1 << 20
_FACTS = (
    "gpu_model", "gpu_driver", "cpu_model", "kernel", "os_release", "cuda_ver", "python_ver", "ingero_ver",
)  # fmt: skip


def nodes(work: Conversion) -> None:
    """Every node the file names."""
    go = work.go
    sql = f"SELECT DISTINCT {work.node_sql()} FROM events LIMIT {MAX_NODES + 1}"
    raw = {str(row[0]) for row in go.rows(sql, (work.default_node,))}
    if go.has("sessions", "node"):
        found = go.rows(f"SELECT DISTINCT {go.text('sessions', 'node', 300)} FROM sessions LIMIT {MAX_NODES}")
        raw |= {str(row[0]) for row in found if row[0] is not None}
    if len(raw) > MAX_NODES:
        raise StoreError(f"{go.path} names more than {MAX_NODES:,} nodes", hint="The file is damaged.")
    for name in sorted(raw or {work.default_node}):
        known = clean(name, 128) or "unknown"
        work.out.execute("INSERT OR IGNORE INTO node (name) VALUES (?)", (known,))
        row = work.out.execute("SELECT id FROM node WHERE name = ?", (known,)).fetchone()
        work.node_ids[name] = int(row[0])
    if len(work.node_ids) == 1:
        work.default_node = next(iter(work.node_ids))
    work.out.executemany("INSERT INTO foreign_node VALUES (?, ?)", work.node_ids.items())


def recordings(work: Conversion) -> None:
    """One per session; without any, one per node that covers its events."""
    spans = _spans(work)
    sessions = _sessions(work)
    for at, row in enumerate(sessions):
        later = (s["started_at"] for s in sessions[at + 1 :] if s["node_id"] == row["node_id"])
        _recording(work, row | {"until": next(later, LATEST_NS)}, spans)
    recorded = {each.node_id for each in work.recordings}
    for node_id, (first, last) in spans.items():
        if node_id not in recorded:
            row = {"node_id": node_id, "started_at": first, "stopped_at": last, "until": LATEST_NS}
            _recording(work, row, spans)


def _spans(work: Conversion) -> dict[int, tuple[int, int]]:
    """When the first and the last event of each node happened."""
    at = work.ns_sql("timestamp")
    sql = f"SELECT {work.node_sql()}, MIN({at}), MAX({at}) FROM events GROUP BY 1"
    found: dict[int, tuple[int, int]] = {}
    for raw, first, last in work.go.rows(sql, (work.default_node,)):
        if first is not None:
            node_id = work.node_ids[str(raw)]
            low, high = found.get(node_id, (first, last))
            found[node_id] = (min(low, first), max(high, last))
    return found


def _sessions(work: Conversion) -> list[dict[str, Any]]:
    go = work.go
    if not go.has("sessions", "started_at"):
        return []
    numbers = ("started_at", "stopped_at", "cpu_cores")
    texts = ("node", "pid_filter", "flags", *_FACTS)
    columns = [go.whole("sessions", name) for name in numbers]
    columns += [go.text("sessions", name, 300) for name in texts]
    rows = go.rows(f"SELECT {', '.join(columns)} FROM sessions ORDER BY 1 LIMIT 100000")
    found = []
    for row in rows:
        session = dict(zip((*numbers, *texts), row, strict=True))
        raw = session["node"]
        session["node_id"] = work.node_ids[raw] if raw else work.node_ids.get(work.default_node)
        if session["node_id"] is None:
            session["node_id"] = work.sole_node()
        if session["node_id"] is None or not 0 < (session["started_at"] or 0) < LATEST_NS:
            work.problems["session_unreadable"] += 1
            continue
        found.append(session)
    return found


def _recording(work: Conversion, session: dict[str, Any], spans: dict[int, tuple[int, int]]) -> None:
    node_id, started = session["node_id"], session["started_at"]
    stopped = session.get("stopped_at") or 0
    ended = stopped if started <= stopped < LATEST_NS else None
    seen = spans.get(node_id, (started, started))[1]
    last_ns = ended or max(started, min(seen, session["until"]))  # a killed session has no end of its own
    cores = session.get("cpu_cores")
    cores = cores if cores and 0 < cores < 1 << 20 else None
    flags, pids = clean(session.get("flags") or "", 300), session.get("pid_filter") or ""
    command = " ".join(filter(None, ("trace", f"--pid {clean(pids, 200)}" if pids else "", flags)))
    row = work.out.execute(
        "INSERT INTO recording (node_id, version, command, cores, started_ns, last_ns, ended_ns)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (node_id, f"go {work.go.version}", command, cores, started, last_ns, ended),
    ).fetchone()
    named = frozenset(int(part) for part in pids.replace(" ", ",").split(",") if part.isdecimal())
    work.recordings.append(GoSession(int(row[0]), node_id, started, last_ns, cores, named))
    facts = {name: clean(session[name], 300) for name in _FACTS if session.get(name)}
    _tell(work, int(row[0]), facts, flags)


def _tell(work: Conversion, recording_id: int, facts: dict[str, str], flags: str) -> None:
    totals = work.go.has("event_aggregates", "count")
    totals = totals and bool(work.go.number("SELECT COUNT(*) FROM (SELECT 1 FROM event_aggregates LIMIT 1)"))
    work.out.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [
            (f"source:{recording_id}", json.dumps({"tool": "go", "schema": work.go.version} | facts)),
            (f"not_watched:{recording_id}", json.dumps(not_watched(flags, totals))),
        ],
    )


def already_there(work: Conversion) -> bool:
    """Whether the database has these recordings from an earlier conversion."""
    sql = "SELECT COUNT(*) FROM recording WHERE node_id = ? AND started_ns = ? AND version = ? AND id <> ?"
    return bool(work.recordings) and all(
        work.out.execute(sql, (r.node_id, r.started_ns, f"go {work.go.version}", r.id)).fetchone()[0]
        for r in work.recordings
    )


def samples(work: Conversion) -> None:
    """The machine once a second. The first of a session has no CPU share: it is a difference."""
    go = work.go
    if not go.has("system_snapshots", "timestamp"):
        return
    at = go.whole("system_snapshots", "timestamp")
    columns = [go.real("system_snapshots", name) for name in ("cpu_pct", "mem_pct", "load_avg")]
    columns += [go.whole("system_snapshots", name) for name in ("mem_avail", "swap_mb")]
    sql = (
        f"SELECT {at}, {', '.join(columns)} FROM system_snapshots"
        f" WHERE {at} BETWEEN 0 AND {LATEST_NS} ORDER BY 1"
    )
    started: set[int] = set()
    for row in go.rows(sql):
        recording = _recording_at(work, int(row[0]))
        if recording is None:
            work.problems["sample_without_node"] += 1
            continue
        first = recording.id not in started
        started.add(recording.id)
        _sample(work, recording, row, first)


def _recording_at(work: Conversion, at_ns: int) -> GoSession | None:
    """Whose sample it is: of the only node, or of the only recording that ran then."""
    there = [r for r in work.recordings if r.started_ns <= at_ns <= r.last_ns]
    if work.sole_node() is not None:
        there = there[:1] or work.recordings[:1]
    return there[0] if len(there) == 1 else None


def _sample(work: Conversion, recording: GoSession, row: tuple[Any, ...], first: bool) -> None:
    at, cpu, memory, load, available, swap = row
    if first and cpu == 0:
        cpu = None
    work.out.execute(
        "INSERT OR REPLACE INTO system_sample (node_id, at_ns, cpu_share, memory_share,"
        " memory_available_bytes, load1, cores, swap_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            recording.node_id, at, _share(cpu), _share(memory), _bytes(available), _load(load),
            recording.cores, _bytes(swap),
        ),
    )  # fmt: skip


def _share(percent: float | None) -> float | None:
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None


def _load(load: float | None) -> float | None:
    return float(load) if load is not None and 0 <= load < 1e9 else None


def _bytes(mib: int | None) -> int | None:
    return mib * MIB if mib is not None and 0 <= mib < 1 << 40 else None


# What a recording of the Go implementation cannot show, for every answer made from it.
#
# Kept in `meta` as JSON under `not_watched:ID`, ID being the recording's number: a
# list of {"what", "why"}, as `explain --json` has it.


NOT_WATCHED: tuple[tuple[str, str], ...] = (
    (
        "sched",
        "the recording does not say why a thread was off its core: only waits that match a block read"
        " or look like a timer are named, the rest is unexplained",
    ),
    ("culprits", "who had the core meanwhile was not recorded"),
    ("wakers", "who ended a wait was not recorded"),
    ("threads", "the scheduler was watched for main threads and for tasks begun during the recording"),
    ("memory", "faults and reclaim were not recorded, only page allocations counted"),
    ("nccl", "collectives were not stored"),
    ("gpu", "neither the device of a call nor the state of GPUs was stored"),
    ("xid", "GPU faults were not recorded"),
    ("tcp", "a retransmit was stored with whatever process it interrupted, not its owner"),
    ("lines", "the line of a Python frame is where its function begins"),
)
SELECTED = (
    "calls",
    "single calls are stored by selection, slow ones and synchronising ones foremost;"
    " counts and totals are true where the recording has aggregates",
)
NO_TOTALS = (
    "operations",
    "the recording has no aggregates: counts are of stored rows and may be too low",
)
RECORD_ALL = "record-all"


def not_watched(flags: str, has_totals: bool) -> list[dict[str, str]]:
    """The list for one recording."""
    found = list(NOT_WATCHED)
    if RECORD_ALL not in flags:
        found.append(SELECTED)
    if not has_totals:
        found.append(NO_TOTALS)
    return [{"what": what, "why": why} for what, why in found]
