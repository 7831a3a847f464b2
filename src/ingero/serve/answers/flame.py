"""Stacks for flame graphs: as a tree for pages, and as text, one line each, outermost frame first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ingero.errors import UsageError
from ingero.model.sites import Sites
from ingero.model.stack import Frame
from ingero.model.window import BUCKET_NAMES, Records
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.whose import EVERYBODY, Whose, pids_on
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.store.sites import SiteReader
from ingero.units import clean

# Stacks as a tree: where the time of slow calls, waits and samples is, and who allocates.
#
# The rows are those of `export --format folded`; branches too small to be seen are put
# together, so that a tree of any recording fits on a page.

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
    node: str | None = None, whose: Whose = EVERYBODY,
) -> FlameAnswer:  # fmt: skip
    """Outermost frame first, under its process; the call itself is the innermost."""
    if what not in WHAT:
        raise UsageError(f"cannot weigh {clean(what, 40)!r}", hint=f"One of {', '.join(WHAT)}.")
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        with reader.trouble_told(), sense_made_of(reader):
            root, without = _tree(reader, when, what, pid, op, whose)
            share = without / root.value if root.value else None
            _prune(root, root.value * LEAST_SHARE)
            window = WindowAnswer(when.from_ns, when.to_ns)
            return checked(FlameAnswer(window, what, WHAT[what].words, WHAT[what].unit, share, root))


def _tree(
    reader: Reader, when: TimeRange, what: str, pid: int | None, op: str | None, whose: Whose
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
        if whose:
            rows = rows[np.isin(rows["pid"], pids_on(reader, whose, node_id))]
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


# Stacks as text for flame graphs: one line each, outermost frame first, and what it weighs.
#
# The format that flamegraph.pl, speedscope and inferno read. A process is the root of its
# stacks, or its node where there are several; what has no stack stands beside them, so
# that nothing looks larger than it is.


NO_STACK = "[no stack]"


class FoldWeight(NamedTuple):
    """What can be weighed, and in which unit."""

    column: str
    unit: str


FOLDED_BY = {
    "calls": FoldWeight("count", "calls"),
    "samples": FoldWeight("count", "samples of 20.4 ms"),
    "waits": FoldWeight("ns", "nanoseconds"),
    "bytes": FoldWeight("bytes", "bytes"),
}


def folded(
    db: Path | None,
    wanted: Range,
    what: str,
    pid: int | None = None,
    op: str | None = None,
    node: str | None = None,
) -> Iterator[str]:
    """Lines of a folded file, heaviest first; `op` is an operation, or for waits a bucket."""
    with Reader(db or last_path(), node) as reader, reader.trouble_told():
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        weights: dict[str, float] = defaultdict(float)
        nodes = {each.node_id: each.node for each in reader.recordings()}
        for node_id, name in nodes.items():
            root = f"{_plain(name)};" if len(nodes) > 1 else ""
            for path, weight in _stacks(reader, node_id, when, what, pid, op):
                weights[root + path] += weight
    for path in sorted(weights, key=lambda each: (-weights[each], each)):
        if round(weights[path]) > 0:
            yield f"{path} {round(weights[path])}"


def _stacks(
    reader: Reader, node_id: int, when: TimeRange, what: str, pid: int | None, op: str | None
) -> Iterator[tuple[str, float]]:
    sites = SiteReader(reader.connection, node_id)
    rows = _folded_rows(sites, when, what, pid)
    if op is not None:
        rows = rows[_chosen(reader, rows, what, op)]
    names = dict(reader.rows("SELECT pid, comm FROM process WHERE node_id = ? ORDER BY start_ns", (node_id,)))
    frames = sites.stacks(np.unique(rows["stack"]).tolist())
    for owner, stack, weight in zip(
        rows["pid"].tolist(), rows["stack"].tolist(), rows[FOLDED_BY[what].column].tolist(), strict=True
    ):
        root = _plain(f"{names.get(owner) or '?'} ({owner})")
        yield ";".join([root, *_path(frames.get(stack, ()))]), weight


def _folded_rows(sites: Sites, when: TimeRange, what: str, pid: int | None) -> Records:
    ask = {"samples": sites.samples, "waits": sites.waits}.get(what, sites.calls)
    return ask(pid, when.from_ns, when.to_ns)


def _chosen(reader: Reader, rows: Records, what: str, op: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if what == "waits":
        if op not in BUCKET_NAMES:
            raise UsageError(f"there is no bucket {op!r}", hint=f"One of {', '.join(BUCKET_NAMES)}.")
        return np.asarray(rows["bucket"] == BUCKET_NAMES.index(op))
    numbers = [number for (number,) in reader.rows("SELECT id FROM op WHERE lower(name) = lower(?)", (op,))]
    if not numbers:
        raise UsageError(
            f"there is no operation {op!r} in this recording", hint="See `ingero query` without --op."
        )
    return np.asarray(np.isin(rows["op"], numbers))


def _path(frames: tuple[Frame, ...]) -> list[str]:
    return [_plain(frame_words(frame)) for frame in reversed(frames)] or [NO_STACK]


def frame_words(frame: Frame) -> str:
    """`forward (train.py:142)`, `cuLaunchKernel (libcuda.so.1)`."""
    name = frame.function or "?"
    if frame.kind == "python" and frame.file:
        place = (
            f"{frame.file.rpartition('/')[2]}:{frame.line}" if frame.line else frame.file.rpartition("/")[2]
        )
        return f"{name} ({place})"
    return f"{name} ({frame.module.rpartition('/')[2]})" if frame.module else name


def _plain(text: str) -> str:
    """A semicolon ends a frame, a line break a stack."""
    return clean(text, 300).replace(";", ":") or "?"
