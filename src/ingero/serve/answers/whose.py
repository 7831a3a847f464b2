"""Which processes are a tenant's: pods, namespaces, jobs and users as conditions on processes.

One place for every question that can be narrowed so; a job is meant with all its steps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from ingero.errors import TargetError, UsageError
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.units import clean


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose processes; None means everybody's."""

    container: str | None = None  # id, or its beginning of at least four characters; or its name
    pod: str | None = None  # or NAMESPACE/POD
    namespace: str | None = None
    job: str | None = None
    user: str | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) is not None for field in fields(self))


EVERYBODY = Whose()
WORDS = tuple(field.name for field in fields(Whose))
MOST_NAMES = 500
LONGEST_NAME = 63 + 1 + 253  # NAMESPACE/POD: what is cut shorter could be two pods in one line
UNNAMED = "(none)"  # processes without such a name
# Labels of processes and containers, as `tenants` in store/views.py joins them.
JOINED = """
    FROM process p
    LEFT JOIN node n ON n.id = p.node_id
    LEFT JOIN container c ON c.cgroup_id = p.cgroup_id AND c.node_id = p.node_id
    LEFT JOIN container_label w ON w.cgroup_id = p.cgroup_id AND w.node_id = p.node_id AND w.key = 'name'
    LEFT JOIN process_label j ON j.process_id = p.id AND j.key = 'job'
    LEFT JOIN process_label u ON u.process_id = p.id AND u.key = 'user'"""
# What each of them is called where lines are told apart by it.
NAMES = {
    "namespace": "c.namespace",
    "job": "COALESCE(j.value, c.job)",
    "user": "u.value",
    "pod": "COALESCE(c.namespace || '/' || c.pod, c.pod)",
    "container": "substr(c.container_id, 1, 12)",
    "node": "n.name",
}
_PROCESSES = f"SELECT {{columns}} {JOINED} WHERE {{where}}"
_CONDITIONS = {
    "container": "(substr(c.container_id, 1, length({0})) = {0} OR w.value = {0})",
    "pod": "(c.pod = {0} OR c.namespace || '/' || c.pod = {0})",
    "namespace": "c.namespace = {0}",
    # Slurm's cgroup says JOB.STEP, and so did recordings of before.
    "job": "(j.value = {0} OR c.job = {0} OR substr(c.job, 1, length({0}) + 1) = {0} || '.')",
    "user": "u.value = {0}",
}


def process_ids(whose: Whose) -> tuple[str, tuple[str, ...]]:
    """SQL that yields the ids of their processes, and its parameters."""
    where, parameters = _where(whose)
    return _PROCESSES.format(columns="p.id", where=where), parameters


def only_theirs(whose: Whose, column: str = "process_id") -> tuple[str, tuple[str, ...]]:
    """SQL that follows a WHERE, and its parameters; nothing for everybody."""
    if not whose:
        return "", ()
    found, parameters = process_ids(whose)
    return f" AND {column} IN ({found})", parameters


def require_pids(reader: Reader, whose: Whose) -> frozenset[int]:
    """Their process numbers; raises where the recording has nobody of that name."""
    where, parameters = _where(whose)
    found = reader.rows(_PROCESSES.format(columns="DISTINCT p.pid", where=where), parameters)
    if not found:
        raise _unknown(reader, whose)
    return frozenset(pid for (pid,) in found)


def processes_of(reader: Reader, whose: Whose) -> tuple[int, ...] | None:
    """The ids of their processes; None: everybody's."""
    if not whose:
        return None
    sql, parameters = process_ids(whose)
    return tuple(number for (number,) in reader.rows(sql, parameters))


def pids_on(reader: Reader, whose: Whose, node_id: int) -> list[int]:
    """Their process numbers on one node; none where nobody of theirs is there."""
    where, parameters = _where(whose)
    sql = _PROCESSES.format(columns="DISTINCT p.pid", where=f"{where} AND p.node_id = ?")
    return [pid for (pid,) in reader.rows(sql, (*parameters, node_id)) if isinstance(pid, int)]


def _where(whose: Whose) -> tuple[str, tuple[str, ...]]:
    if whose.container is not None and len(whose.container) < 4:
        raise UsageError(
            f"the container id {clean(whose.container, 60)!r} is too short",
            hint="Give at least four characters.",
        )
    asked = {name: getattr(whose, name) for name in WORDS if getattr(whose, name) is not None}
    # Places with a name of their own: the rest of a statement has unnamed ones.
    parts = [_CONDITIONS[name].format("?") for name in asked]
    counts = [part.count("?") for part in parts]
    values = (value for value, count in zip(asked.values(), counts, strict=True) for _ in range(count))
    return " AND ".join(parts) or "1", tuple(values)


def _unknown(reader: Reader, whose: Whose) -> TargetError:
    """What is not there, and who is."""
    for name in WORDS:
        value = getattr(whose, name)
        if value is not None and not _some(reader, Whose(**{name: value})):
            return TargetError(
                f"there is no {name} {clean(value, 60)!r} in this recording", hint=_known(reader, name)
            )
    return TargetError("no process in this recording matches all of these", hint="Leave one of them out.")


def _some(reader: Reader, whose: Whose) -> list[tuple[Any, ...]]:
    sql, parameters = process_ids(whose)
    return reader.rows(f"{sql} LIMIT 1", parameters)


def _known(reader: Reader, name: str) -> str:
    column = {"container": "c.container_id", "pod": "c.pod"}.get(name, NAMES[name])
    rows = reader.rows(
        _PROCESSES.format(columns=f"DISTINCT {column}", where=f"{column} IS NOT NULL ORDER BY 1 LIMIT 8")
    )
    names = ", ".join(clean(str(row[0]), 40)[:40] for row in rows)
    return f"It has {names}." if names else f"No {name} is known in it; see docs/tenants.md."


def names_by(reader: Reader, by: str) -> dict[int, str]:
    """What each process goes by, by its id; raises where none does."""
    rows = reader.rows(f"SELECT p.id, {NAMES[by]} {JOINED}")
    found = {number: clean(str(name), LONGEST_NAME) for number, name in rows if name}
    if not found:
        raise TargetError(f"no {by} is known in this recording", hint="See docs/tenants.md.")
    return found


class TenantsAnswer(msgspec.Struct, frozen=True):
    """Names to ask by, each list in order and at most MOST_NAMES long."""

    namespace: list[str]
    pod: list[str]
    job: list[str]
    user: list[str]


def get_tenants(db: Path | None, node: str | None = None) -> TenantsAnswer:
    """Of everybody in the recording, or of one node."""
    with Reader(db or last_path(), node) as reader, reader.trouble_told():
        return TenantsAnswer(**{name: _names(reader, name) for name in TenantsAnswer.__struct_fields__})


def _names(reader: Reader, name: str) -> list[str]:
    """As they are, for they are asked by; what no question may be as long as is left out."""
    rows = reader.rows(
        _PROCESSES.format(
            columns=f"DISTINCT {NAMES[name]}",
            where=f"{NAMES[name]} IS NOT NULL ORDER BY 1 LIMIT {MOST_NAMES}",
        )
    )
    return [text for (text,) in rows if isinstance(text, str) and 0 < len(text) <= LONGEST_NAME]


def require_whose(reader: Reader, whose: Whose) -> None:
    """The same check alone."""
    if whose:
        require_pids(reader, whose)
