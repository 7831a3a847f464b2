"""Bytes copied and GPU memory asked for, out of a recording; each byte once, as moved_bytes.py says."""

from __future__ import annotations

from collections.abc import Iterable

from ingero.model.layout import Why
from ingero.model.operations import Operation
from ingero.serve.answers.moved_bytes import DIRECTIONS, once, split
from ingero.serve.answers.operations import Totals
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader

Operations = Iterable[tuple[int | None, str, str, str, Totals]]  # process, layer, name, kind
_RECORDED = f"""
    SELECT e.process_id, o.layer, o.name, e.direction, SUM(e.bytes * e.weight)
    FROM event e JOIN op o ON o.id = e.op_id
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND e.direction IS NOT NULL
        AND e.bytes > 0 AND o.kind = 'copy' AND NOT COALESCE(e.why, 0) & {int(Why.WHY_ERROR)}
    GROUP BY 1, 2, 3, 4"""
Key = tuple[int | None, str, str]


def copied(reader: Reader, when: TimeRange, operations: Operations) -> dict[tuple[int | None, str], int]:
    """By process and direction."""
    found: dict[tuple[int | None, str], int] = {}
    counted = list(once(_counted(operations, "copy")))
    recorded = _recorded(reader, when) if any(not operation.direction for _, operation, _ in counted) else {}
    for process, operation, size in counted:
        told = recorded.get((process, operation.layer, operation.name), {})
        parts = [(operation.direction, size)] if operation.direction else split(size, told)
        for direction, part in parts:
            found[process, direction] = found.get((process, direction), 0) + part
    return found


def allocated(operations: Operations) -> dict[int | None, int]:
    """By process."""
    found: dict[int | None, int] = {}
    for process, _, size in once(_counted(operations, "alloc")):
        found[process] = found.get(process, 0) + size
    return found


def _counted(operations: Operations, kind: str) -> Iterable[tuple[int | None, Operation, int]]:
    for process, layer, name, of_kind, totals in operations:
        if of_kind == kind and totals.bytes:
            yield process, Operation(0, name, layer, kind, direction=_direction(name)), totals.bytes


def _direction(name: str) -> str | None:
    """As its name tells; copies between cards have none in it."""
    return next((each for each in DIRECTIONS if each in name), "DtoD" if "Peer" in name else None)


def _recorded(reader: Reader, when: TimeRange) -> dict[Key, dict[str, int]]:
    """Bytes of stored calls by direction, where an argument told it."""
    found: dict[Key, dict[str, int]] = {}
    for first, last in reader.id_ranges(when.from_ns, when.to_ns):
        rows = reader.rows(_RECORDED, (first, last, when.from_ns, when.to_ns))
        for process, layer, name, direction, size in rows:
            if 0 <= direction < len(DIRECTIONS):
                told = found.setdefault((process, layer, name), {})
                told[DIRECTIONS[direction]] = told.get(DIRECTIONS[direction], 0) + size
    return found
