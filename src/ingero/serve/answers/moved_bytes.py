"""Bytes copied, by direction, and GPU memory asked for, each byte once: from one window here.

A runtime call and the driver call inside it both count their bytes: those of the driver stand,
and of the runtime what did not reach it. Most copies have their direction in the name of the
function. Of the others it stands in an argument, which only recorded calls have: the bytes
counted are split as those were, and what no recorded call stands for is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np

from ingero.model.layout import CallFlag, Why
from ingero.model.operations import Operation
from ingero.model.window import Window

DIRECTIONS = ("HtoH", "HtoD", "DtoH", "DtoD")
UNKNOWN = "unknown"
Operations = Mapping[int, Operation]
W = TypeVar("W")  # whose: a process
Key = tuple[int, int]  # process, operation


def copied(window: Window, operations: Operations) -> Iterator[tuple[int, str, int]]:
    """(pid, direction, bytes)."""
    recorded: dict[Key, dict[str, int]] | None = None
    for pid, operation, size in once(_counted(window, operations, "copy")):
        if operation.direction is not None:
            yield pid, operation.direction, size
            continue
        if recorded is None:
            recorded = _recorded(window, operations)
        for direction, part in split(size, recorded.get((pid, operation.number), {})):
            yield pid, direction, part


def allocated(window: Window, operations: Operations) -> Iterator[tuple[int, int]]:
    """(pid, bytes)."""
    return ((pid, size) for pid, _, size in once(_counted(window, operations, "alloc")))


def _counted(window: Window, operations: Operations, kind: str) -> Iterator[tuple[int, Operation, int]]:
    """(process, operation, bytes) of one kind of operation."""
    wanted = [number for number, each in operations.items() if each.kind == kind and each.bytes_known]
    rows = window.operations[np.isin(window.operations["op"], wanted) & (window.operations["bytes"] > 0)]
    columns = (rows[name].tolist() for name in ("pid", "op", "bytes"))
    return ((pid, operations[number], size) for pid, number, size in zip(*columns, strict=True))


def once(counted: Iterable[tuple[W, Operation, int]]) -> Iterator[tuple[W, Operation, int]]:
    """The bytes of a runtime call less what its process gave the driver."""
    above: list[tuple[W, Operation, int]] = []
    below: dict[W, int] = {}
    for who, operation, size in counted:
        if operation.layer == "driver":
            below[who] = below.get(who, 0) + size
            yield who, operation, size
        else:
            above.append((who, operation, size))
    for who, operation, size in above:
        seen = min(size, below.get(who, 0))
        below[who] = below.get(who, 0) - seen
        if size > seen:
            yield who, operation, size - seen


def _recorded(window: Window, operations: Operations) -> dict[Key, dict[str, int]]:
    """Bytes of recorded calls whose argument tells the direction."""
    found: dict[Key, dict[str, int]] = {}
    calls = window.calls
    for number, operation in operations.items():
        if operation.kind != "copy" or operation.kind_arg is None:
            continue
        told = (calls["flags"] & int(CallFlag.CALL_NO_BYTES) == 0) & (calls["why"] & int(Why.WHY_ERROR) == 0)
        chosen = calls[(calls["op"] == number) & told]
        if not len(chosen):
            continue
        kinds = chosen["args"][:, operation.kind_arg] & 0xFFFFFFFF  # an int: the upper half is undefined
        for kind, direction in enumerate(DIRECTIONS):
            those = chosen[kinds == kind]
            for pid in set(those["h"]["pid"].tolist()):
                mine = those[those["h"]["pid"] == pid]
                size = int((mine["bytes"] * mine["weight"]).sum())
                found.setdefault((pid, number), {})[direction] = size
    return found


def split(size: int, shares: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    total = sum(shares.values())
    left = size
    for direction, share in shares.items():
        part = size * share // total if total else 0
        left -= part
        yield direction, part
    if not total:
        yield UNKNOWN, left
    elif left:  # what rounding left over
        yield max(shares, key=lambda name: shares[name]), left
