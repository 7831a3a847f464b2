"""What each table's rows become in another database.

Most of it follows from the names of columns; a test holds both tables below against
the schema, so that a new table or a new number cannot be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingero.store.schema import SEQ_MASK

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
