"""Stacks as a tree: where the time of slow calls, waits and samples is, and who allocates.

The rows are those of `export --format folded`; branches too small to be seen are put
together, so that a tree of any recording fits on a page.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ingero.errors import UsageError
from ingero.model.stack import Frame
from ingero.model.window import Records
from ingero.serve.answers.folded import NO_STACK, frame_words
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.store.sites import SiteReader
from ingero.units import clean

LEAST_SHARE = 1 / 2000
SMALL = "[small ones]"
DEEPEST = 128


class Weighed(NamedTuple):
    """Which rows are asked for, what of them is weighed, in which unit."""

    rows: str
    column: str
    unit: str
    words: str


WHAT = {
    "calls": Weighed("calls", "ns", "ns", "time inside recorded CUDA and NCCL calls"),
    "allocations": Weighed("calls", "bytes", "bytes", "bytes allocated"),
    "waits": Weighed("waits", "ns", "ns", "waits of a millisecond and longer"),
    "samples": Weighed("samples", "count", "samples", "samples on a core"),
}


class FlameNode(msgspec.Struct):
    """One frame under its caller; `value` includes its children."""

    name: str
    kind: str  # process, op, python, native, other
    value: float
    children: list[FlameNode] = []
    file: str | None = None
    line: int | None = None


class FlameAnswer(msgspec.Struct, frozen=True):
    """`without_share` of the weight had no stack."""

    window: WindowAnswer
    what: str
    words: str
    unit: str
    without_share: float | None
    root: FlameNode


def get_flame(
    db: Path | None, wanted: Range, what: str = "calls", pid: int | None = None, op: str | None = None,
    node: str | None = None,
) -> FlameAnswer:  # fmt: skip
    """Outermost frame first, under its process; the call itself is the innermost."""
    if what not in WHAT:
        raise UsageError(f"cannot weigh {clean(what, 40)!r}", hint=f"One of {', '.join(WHAT)}.")
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        with reader.trouble_told(), sense_made_of(reader):
            root, without = _tree(reader, when, what, pid, op)
            share = without / root.value if root.value else None
            _prune(root, root.value * LEAST_SHARE)
            window = WindowAnswer(when.from_ns, when.to_ns)
            return checked(FlameAnswer(window, what, WHAT[what].words, WHAT[what].unit, share, root))


def _tree(
    reader: Reader, when: TimeRange, what: str, pid: int | None, op: str | None
) -> tuple[FlameNode, float]:
    weighed, without = WHAT[what], 0.0
    root = FlameNode("all", "other", 0.0)
    index: dict[tuple[int, str], FlameNode] = {}
    ops = {
        number: (clean(name, 200), kind)
        for number, name, kind in reader.rows("SELECT id, name, kind FROM op")
    }
    for node_id, node in sorted({(each.node_id, each.node) for each in reader.recordings()}):
        sites = SiteReader(reader.connection, node_id)
        rows = _rows(sites, when, weighed, pid, ops, op, what)
        comms = dict(reader.rows("SELECT pid, comm FROM process WHERE node_id = ?", (node_id,)))
        frames = sites.stacks(np.unique(rows["stack"]).tolist())
        for row in rows:
            weight, owner = float(row[weighed.column]), int(row["pid"])
            stack = frames.get(int(row["stack"]), ())
            without += weight if not stack else 0
            place = f"{clean(comms.get(owner) or '?', 64)} ({owner}) on {clean(node, 64)}"
            name = ops.get(int(row["op"]), ("", ""))[0] if weighed.rows == "calls" else ""
            _add(root, index, place, stack[:DEEPEST], name, weight)
    return root, without


def _rows(
    sites: SiteReader, when: TimeRange, weighed: Weighed, pid: int | None,
    ops: dict[int, tuple[str, str]], op: str | None, what: str,
) -> Records:  # fmt: skip
    ask = {"calls": sites.calls, "waits": sites.waits, "samples": sites.samples}[weighed.rows]
    rows = ask(pid, when.from_ns, when.to_ns)
    if what == "allocations":
        rows = rows[np.isin(rows["op"], [number for number, (_, kind) in ops.items() if kind == "alloc"])]
    if op is not None and weighed.rows == "calls":
        rows = rows[np.isin(rows["op"], [number for number, (name, _) in ops.items() if name == op])]
    return rows[rows[weighed.column] > 0]


def _add(
    root: FlameNode, index: dict[tuple[int, str], FlameNode], place: str, stack: tuple[Frame, ...],
    op: str, weight: float,
) -> None:  # fmt: skip
    path: list[tuple[str, str, str | None, int | None]] = [(place, "process", None, None)]
    path += [
        (clean(frame_words(each), 300), each.kind, each.file, each.line) for each in reversed(stack)
    ] or [(NO_STACK, "other", None, None)]
    if op and not (stack and stack[0].function == op):  # where the innermost frame is not the call itself
        path.append((op, "op", None, None))
    root.value += weight
    at = root
    for name, kind, file, line in path:
        child = index.get((id(at), name))
        if child is None:
            child = index[id(at), name] = FlameNode(name, kind, 0.0, [], file, line)
            at.children.append(child)
        child.value += weight
        at = child


def _prune(node: FlameNode, least: float) -> None:
    small = [child for child in node.children if child.value < least]
    node.children = sorted((child for child in node.children if child.value >= least), key=lambda c: -c.value)
    if small:
        node.children.append(FlameNode(SMALL, "other", sum(child.value for child in small)))
    for child in node.children:
        _prune(child, least)
