"""What each table's rows become in another database.

Most of it follows from the names of columns; a test holds both tables below against
the schema, so that a new table or a new number cannot be forgotten.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass

from ingero.errors import StoreError
from ingero.store.merge.source import MAX_NODE, Part
from ingero.store.schema import NODE_SHIFT, SEQ_MASK
from ingero.units import clean

# Columns that hold a number which means something only within one file.
REFERENCES = {
    "node_id": "node",
    "recording_id": "recording",
    "process_id": "process",
    "op_id": "op",
    "call_op_id": "op",
    "comm_id": "string",
    "waker_id": "string",
    "reason_id": "string",
    "key_id": "string",
    "kernel_id": "kernel",
    "event_id": "event",
    "first_id": "event",
    "last_id": "event",
    "stack_hash": "stack",
    "cgroup_id": "cgroup",
    "function_id": "frame_text",
    "file_id": "frame_text",
    "module_id": "frame_text",
}
# Names that end in _id and mean the same everywhere, or the same on their node.
PLAIN_IDS = frozenset({"gpu_id", "bus_id", "boot_id", "container_id", "rolled_id"})
# Temporary tables old, new.
MAPPED = ("recording", "process", "op", "string", "kernel", "frame_text", "frame", "stack", "cgroup")
KEPT_NUMBERS = frozenset({"event"})  # their `id` is an event's number
# Copied as they stand, one row for one row, in this order; and what becomes of a row that is there already.
PLAIN_TABLES: dict[str, str] = {
    "event": "",
    "wait_detail": "",
    "block_detail": "",
    "tcp_detail": "",
    "xid_detail": "",
    "collective": "",
    "thread_second": "",
    "culprit": "",
    "waker": "",
    "io_second": "",
    "thread_sample": "",
    "loss": "",
    "clock_step": "",
    "window": "",
    "not_watched": "",
    "annotation": "",
    "overhead_second": "",
    "governor_action": "",
    "switch_second": "",
    "clock_offset": "DO NOTHING",
    "thread_estimate": "",
    "system_sample": "DO NOTHING",
    "gpu": "DO UPDATE SET first_ns = MIN(first_ns, excluded.first_ns),"
    " last_ns = MAX(last_ns, excluded.last_ns)",
    "gpu_sample": "DO NOTHING",
    "gpu_process": "DO NOTHING",
    "in_flight": "DO UPDATE SET first_seen_ns = MIN(first_seen_ns, excluded.first_seen_ns),"
    " bucket = IIF(excluded.last_seen_ns > last_seen_ns, excluded.bucket, bucket),"
    " bucket_ns = IIF(excluded.last_seen_ns > last_seen_ns, excluded.bucket_ns, bucket_ns),"
    " before_attach = before_attach | excluded.before_attach,"
    " last_seen_ns = MAX(last_seen_ns, excluded.last_seen_ns)",
    "container_label": "DO NOTHING",
    "process_label": "DO NOTHING",
    "pod_event": "DO NOTHING",
    "container": "DO UPDATE SET cgroup_path = COALESCE(cgroup_path, excluded.cgroup_path),"
    " container_id = COALESCE(container_id, excluded.container_id),"
    " runtime = COALESCE(runtime, excluded.runtime), pod = COALESCE(pod, excluded.pod),"
    " namespace = COALESCE(namespace, excluded.namespace), job = COALESCE(job, excluded.job)",
}
# Modules of their own know these; `bucket` is the same in every database.
SPECIAL_TABLES = frozenset(
    {
        "meta", "node", "string", "kernel", "op", "bucket", "recording", "process", "stack", "frame",
        "frame_text", "collective_round", "operation_second", "operation_minute", "finding",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Move:
    """Where the rows of one node go."""

    old_node: int
    new_node: int
    shift: int  # added to an event's number on its node
    stacks_change: bool  # some stacks got another hash


def mapped(column: str, move: Move, table: str = "") -> str:
    """SQL for the value of a column of `s`, a row of the source, in the result."""
    kind = REFERENCES.get(column)
    if column == "id" and table in KEPT_NUMBERS:
        kind = "event"
    if kind is None or (kind == "stack" and not move.stacks_change):
        return f's."{column}"'
    if kind == "node":
        return str(move.new_node)
    if kind == "event":
        return f's."{column}" + {_base(move.new_node) + move.shift - _base(move.old_node)}'
    found = f'(SELECT new FROM temp.{kind}_map WHERE old = s."{column}")'
    if kind in ("stack", "cgroup"):  # only those that had to change are in the map
        return f'COALESCE({found}, s."{column}")'
    # 0 stands for none; a number that leads nowhere, such as to a process long deleted, becomes NULL
    return f'CASE WHEN s."{column}" > 0 THEN {found} ELSE s."{column}" END'


def of_node(table: str, columns: frozenset[str], move: Move) -> str:
    """SQL that is true for rows of `s` which belong to the node moved."""
    first = _base(move.old_node)
    if table in KEPT_NUMBERS:
        return f"s.id BETWEEN {first} AND {first + SEQ_MASK}"
    if "node_id" in columns:
        return f"s.node_id = {move.old_node}"
    return f"s.event_id BETWEEN {first} AND {first + SEQ_MASK}"


def insert_statement(table: str, both: frozenset[str], move: Move, where: str = "") -> str:
    """SQL that copies a table's rows of one node; empty where the source has no such table."""
    names = sorted(both if table in KEPT_NUMBERS else both - {"id"})  # others are numbered anew
    if not names:
        return ""
    values = ", ".join(mapped(name, move, table) for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    meeting = PLAIN_TABLES.get(table)
    return (
        f"INSERT INTO main.{table} ({listed}) SELECT {values} FROM src.{table} s"
        f" WHERE {of_node(table, both, move)}{where}{f' ON CONFLICT {meeting}' if meeting else ''}"
    )


def _base(node_id: int) -> int:
    return node_id * (SEQ_MASK + 1)


# The maps from a file's numbers to the result's: names, nodes, recordings, processes.


def names(out: sqlite3.Connection) -> None:
    """Strings, kernels and operations: the same text is the same row."""
    out.execute("INSERT OR IGNORE INTO main.string (text) SELECT text FROM src.string ORDER BY id")
    out.execute(
        "INSERT INTO temp.string_map SELECT s.id, m.id FROM src.string s"
        " JOIN main.string m ON m.text = s.text"
    )
    out.execute(
        "INSERT OR IGNORE INTO main.kernel (name, short, known)"
        " SELECT name, short, known FROM src.kernel ORDER BY id"
    )
    out.execute(
        "INSERT INTO temp.kernel_map SELECT s.id, m.id FROM src.kernel s"
        " JOIN main.kernel m ON m.name = s.name"
    )
    out.execute(
        "INSERT OR IGNORE INTO main.op (source, layer, name, kind, bytes_known)"
        " SELECT source, layer, name, kind, bytes_known FROM src.op ORDER BY id"
    )
    out.execute(
        "INSERT INTO temp.op_map SELECT s.id, m.id FROM src.op s"
        " JOIN main.op m ON m.layer = s.layer AND m.name = s.name"
    )


def node(out: sqlite3.Connection, part: Part) -> tuple[int, int]:
    """The node's number in the result, and by how much its events' numbers move."""
    out.execute("INSERT OR IGNORE INTO main.node (name) VALUES (?)", (part.node,))
    new_id, taken = out.execute("SELECT id, next_seq FROM main.node WHERE name = ?", (part.node,)).fetchone()
    first = part.node_id << NODE_SHIFT
    used = out.execute("SELECT next_seq FROM src.node WHERE id = ?", (part.node_id,)).fetchone()[0]
    for table in ("event", "finding"):
        last = (
            f"SELECT COALESCE(MAX(id), ?1) - ?1 + 1 FROM src.{table} WHERE id BETWEEN ?1 AND ?1 + {SEQ_MASK}"
        )
        used = max(used, out.execute(last, (first,)).fetchone()[0])
    shift = taken - 1
    if new_id > MAX_NODE or shift + used > SEQ_MASK:
        raise StoreError(
            f"{clean(part.node, 60)} has more events than can be numbered", hint="Leave a recording out."
        )
    out.execute("UPDATE main.node SET next_seq = ? WHERE id = ?", (shift + used, new_id))
    return new_id, shift


def cgroups(out: sqlite3.Connection, node_name: str, new_node: int) -> None:
    """Kernels count cgroups each by itself: a number that another node has too gets one of its own.

    Scripts join containers by this number alone. It follows from node and number, so that a later
    recording of the node gets the same.
    """
    out.execute("DELETE FROM temp.cgroup_map")
    others = out.execute(
        "SELECT cgroup_id FROM (SELECT cgroup_id, node_id FROM main.container"
        " UNION SELECT cgroup_id, node_id FROM main.process)"
        " WHERE node_id <> ?1 AND typeof(cgroup_id) = 'integer' AND cgroup_id <> 0 GROUP BY 1",
        (new_node,),
    ).fetchall()
    out.executemany(
        "INSERT INTO temp.cgroup_map VALUES (?, ?)", [(old, _own_number(node_name, old)) for (old,) in others]
    )


def _own_number(node_name: str, cgroup_id: int) -> int:
    digest = hashlib.blake2b(f"{node_name}:{cgroup_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2 | 1 << 61  # above every number a kernel gives out


def recordings(out: sqlite3.Connection, move: Move, both: frozenset[str]) -> None:
    names = sorted(both - {"id"})
    listed, values = ", ".join(names), ", ".join(mapped(name, move) for name in names)
    found = "SELECT id FROM src.recording WHERE node_id = ? ORDER BY started_ns, id"
    for (old,) in out.execute(found, (move.old_node,)).fetchall():
        new = out.execute(
            f"INSERT INTO main.recording ({listed}) SELECT {values} FROM src.recording s WHERE id = ?", (old,)
        ).lastrowid
        out.execute("INSERT INTO temp.recording_map VALUES (?, ?)", (old, new))
        out.executemany(
            "INSERT OR REPLACE INTO main.meta SELECT ?, value FROM src.meta WHERE key = ?",
            [(f"{kind}:{new}", f"{kind}:{old}") for kind in ("source", "not_watched", "clock_shift")],
        )


def processes(out: sqlite3.Connection, move: Move, both: frozenset[str]) -> None:
    """The same process, by boot, PID and start, is one row, whoever recorded it when."""
    out.execute(
        "INSERT INTO temp.process_map SELECT s.id, m.id FROM src.process s JOIN main.process m"
        " ON m.node_id = ? AND m.pid = s.pid AND m.boot_id = s.boot_id AND m.start_tick = s.start_tick"
        " WHERE s.node_id = ?",
        (move.new_node, move.old_node),
    )
    later = sorted(both - {"id", "node_id", "pid", "boot_id", "start_tick", "first_seen_ns", "target"})
    newer = ", ".join(f"{name} = COALESCE({mapped(name, move)}, process.{name})" for name in later)
    out.execute(
        f"UPDATE main.process SET {newer},"
        " first_seen_ns = MIN(COALESCE(process.first_seen_ns, s.first_seen_ns), s.first_seen_ns),"
        " target = MAX(process.target, s.target)"
        " FROM src.process s JOIN temp.process_map p ON p.old = s.id"
        " WHERE process.id = p.new AND s.node_id = ?",
        (move.old_node,),
    )
    above = out.execute("SELECT COALESCE(MAX(id), 0) FROM main.process").fetchone()[0]
    names = sorted(both - {"id"})
    fresh = f"s.node_id = {move.old_node} AND s.id NOT IN (SELECT old FROM temp.process_map)"
    out.execute(
        f"INSERT INTO main.process (id, {', '.join(names)}) SELECT s.id + {above},"
        f" {', '.join(mapped(name, move) for name in names)} FROM src.process s WHERE {fresh}"
    )
    out.execute(f"INSERT INTO temp.process_map SELECT s.id, s.id + {above} FROM src.process s WHERE {fresh}")
