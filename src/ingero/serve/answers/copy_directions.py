"""Bytes copied by direction, from one window.

Most copies have their direction in the name of the function. Of the others it stands in
an argument, which only recorded calls have: the bytes counted are split as those were,
and what no recorded call stands for is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingero.model.layout import CallFlag
from ingero.model.operations import Operation
from ingero.model.window import Window

DIRECTIONS = ("HtoH", "HtoD", "DtoH", "DtoD")
UNKNOWN = "unknown"
Key = tuple[int, int]  # process, operation


def copied(window: Window, operations: Mapping[int, Operation]) -> Iterator[tuple[int, str, int]]:
    """(pid, direction, bytes)."""
    rows = window.operations[window.operations["bytes"] > 0]
    recorded: dict[Key, dict[str, int]] | None = None
    for row in rows:
        operation = operations.get(int(row["op"]))
        if operation is None or operation.kind != "copy":
            continue
        pid, size = int(row["pid"]), int(row["bytes"])
        if operation.direction is not None:
            yield pid, operation.direction, size
            continue
        if recorded is None:
            recorded = _recorded(window, operations)
        for direction, part in _split(size, recorded.get((pid, operation.number), {})):
            yield pid, direction, part


def _recorded(window: Window, operations: Mapping[int, Operation]) -> dict[Key, dict[str, int]]:
    """Bytes of recorded calls whose argument tells the direction."""
    found: dict[Key, dict[str, int]] = {}
    calls = window.calls
    for number, operation in operations.items():
        if operation.kind != "copy" or operation.kind_arg is None:
            continue
        chosen = calls[(calls["op"] == number) & (calls["flags"] & int(CallFlag.CALL_NO_BYTES) == 0)]
        if not len(chosen):
            continue
        told = chosen["args"][:, operation.kind_arg] & 0xFFFFFFFF  # an int: the upper half is undefined
        for kind, direction in enumerate(DIRECTIONS):
            those = chosen[told == kind]
            for pid in set(those["h"]["pid"].tolist()):
                mine = those[those["h"]["pid"] == pid]
                size = int((mine["bytes"] * mine["weight"]).sum())
                found.setdefault((pid, number), {})[direction] = size
    return found


def _split(size: int, shares: Mapping[str, int]) -> Iterator[tuple[str, int]]:
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
