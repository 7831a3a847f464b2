"""Who: processes with their names and parents, and the containers they ran in.

The file keeps names and cgroups without a node. Where several nodes were merged
into one file, a name whose PID more than one of them has is nobody's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ingero.store.foreign.events import CALLS, CLONE, EXIT
from ingero.store.foreign.source import Conversion
from ingero.units import clean

AGENT_NAME = "ingero"


def comms(work: Conversion) -> None:
    """Command names that events carry (0.10)."""
    comm = work.go.text("events", "comm", 64)
    if comm == "NULL":
        return
    raw = [str(row[0]) for row in work.go.rows(f"SELECT DISTINCT {comm} FROM events") if row[0] is not None]
    rows = [(text, work.names.string(clean(text, 64))) for text in raw]
    work.out.executemany("INSERT OR IGNORE INTO foreign_comm VALUES (?, ?)", rows)


def processes(work: Conversion) -> None:
    """One row per PID seen: PIDs reused within one file cannot be told apart."""
    found = _from_events(work)
    names = _process_names(work)
    sole = work.sole_node()
    if sole is not None:
        for pid in [*names, *_from_totals(work)]:
            found.setdefault((sole, pid), {})
    _add_parents(work, found)
    owners = Counter(pid for _, pid in found)
    shared = {pid for pid, count in owners.items() if count > 1}  # a name is kept without its node
    first = work.out.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM process").fetchone()[0]
    for number, ((node_id, pid), row) in enumerate(sorted(found.items()), first):
        comm = names.get(pid) if pid not in shared else None
        _process(work, number, node_id, pid, row | {"comm": comm or row.get("comm") or _own_name(pid)})


def _own_name(pid: int) -> str | None:
    return "swapper" if pid == 0 else None


def _process(work: Conversion, number: int, node_id: int, pid: int, row: dict[str, Any]) -> None:
    comm = clean(row["comm"], 64) if row["comm"] else None
    work.out.execute(
        "INSERT INTO process (id, node_id, pid, start_ns, first_seen_ns, end_ns, parent_pid, comm, cgroup_id,"
        " rank, local_rank, world_size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number, node_id, pid, row.get("start"), row.get("first"), row.get("end"), row.get("parent"), comm,
            row.get("cgroup"), row.get("rank"), row.get("local_rank"), row.get("world_size"),
        ),
    )  # fmt: skip
    comm_id = work.names.string(comm) if comm else None
    work.out.execute("INSERT INTO foreign_process VALUES (?, ?, ?, ?)", (node_id, pid, number, comm_id))
    work.process_ids[node_id, pid] = number
    if comm == AGENT_NAME:
        work.agents.add((node_id, pid))


def _from_events(work: Conversion) -> dict[tuple[int, int], dict[str, Any]]:
    go = work.go
    at, pid, tid = work.ns_sql("timestamp"), work.pid_sql("pid"), work.pid_sql("tid")
    cgroup = work.cgroup_sql()
    ranks = [go.whole("events", name) for name in ("rank", "local_rank", "world_size")]
    same = ", ".join(f"CASE WHEN MIN({each}) = MAX({each}) THEN MIN({each}) END" for each in ranks)
    own = f"CASE WHEN {tid} = {pid} THEN {go.text('events', 'comm', 64)} END"
    sql = (
        f"SELECT {work.node_sql()}, {pid}, MIN({at}), MAX(CASE WHEN source = 3 AND op = {EXIT} AND tid = pid"
        f" THEN {at} END), COALESCE(MAX(CASE WHEN source IN {CALLS} THEN {cgroup} END),"
        f" MAX(CASE WHEN source = 5 THEN {cgroup} END)), MAX({own}), {same} FROM events"
        f" WHERE {pid} IS NOT NULL AND source <> 6 GROUP BY 1, 2"
    )
    keys = ("first", "end", "cgroup", "comm", "rank", "local_rank", "world_size")
    return {
        (work.node_ids[str(row[0])], int(row[1])): dict(zip(keys, row[2:], strict=True))
        for row in go.rows(sql, (work.default_node,))
    }


def _process_names(work: Conversion) -> dict[int, str]:
    go = work.go
    if not go.has("process_names", "pid", "name"):
        return {}
    pid, name = go.whole("process_names", "pid"), go.text("process_names", "name", 64)
    sql = f"SELECT {pid}, {name} FROM process_names"
    return {
        int(pid): str(name) for pid, name in go.rows(sql) if pid is not None and name and 0 < pid < 1 << 32
    }


def _from_totals(work: Conversion) -> list[int]:
    if not work.go.has("event_aggregates", "pid"):
        return []
    pid = work.go.whole("event_aggregates", "pid")
    sql = f"SELECT DISTINCT {pid} FROM event_aggregates WHERE {pid} BETWEEN 0 AND 4294967295"
    return [int(row[0]) for row in work.go.rows(sql)]


def _add_parents(work: Conversion, found: dict[tuple[int, int], dict[str, Any]]) -> None:
    child, at = work.pid_sql("arg1"), work.ns_sql("timestamp")
    sql = (
        f"SELECT {work.node_sql()}, {child}, {work.pid_sql('pid')}, MIN({at}) FROM events"
        f" WHERE source = 3 AND op = {CLONE} AND {child} IS NOT NULL GROUP BY 1, 2"
    )
    for raw, pid, parent, start in work.go.rows(sql, (work.default_node,)):
        row = found.get((work.node_ids[str(raw)], int(pid)))
        if row is not None:
            row |= {
                "parent": parent,
                "start": start,
                "first": min(start or 0, row.get("first") or start or 0),
            }


def containers(work: Conversion) -> None:
    go = work.go
    if not go.has("cgroup_metadata", "cgroup_id"):
        return
    texts = ("cgroup_path", "container_id", "pod_name", "namespace")
    columns = ", ".join(go.text("cgroup_metadata", name, 1000) for name in texts)
    known = go.whole("cgroup_metadata", "cgroup_id")
    places = _cgroup_nodes(work)
    for row in go.rows(f"SELECT {known}, {columns} FROM cgroup_metadata WHERE {known} IS NOT NULL"):
        values = [clean(text, 1000) or None if text else None for text in row[1:]]
        for node_id in places.get(int(row[0]), [work.sole_node()]):
            if node_id is not None:
                work.out.execute(
                    "INSERT OR REPLACE INTO container (node_id, cgroup_id, cgroup_path, container_id, pod,"
                    " namespace) VALUES (?, ?, ?, ?, ?, ?)",
                    (node_id, row[0], *values),
                )


def _cgroup_nodes(work: Conversion) -> dict[int, list[int]]:
    """Which nodes have events of a cgroup; only asked where there are several nodes."""
    cgroup = work.cgroup_sql()
    found: dict[int, list[int]] = {}
    if work.sole_node() is None and cgroup != "NULL":
        sql = f"SELECT DISTINCT {work.node_sql()}, {cgroup} FROM events WHERE {cgroup} IS NOT NULL"
        for raw, number in work.go.rows(sql, (work.default_node,)):
            found.setdefault(int(number), []).append(work.node_ids[str(raw)])
    return found
