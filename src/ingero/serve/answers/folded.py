"""Stacks as text for flame graphs: one line each, outermost frame first, and what it weighs.

The format that flamegraph.pl, speedscope and inferno read. A process is the root of its
stacks, or its node where there are several; what has no stack stands beside them, so
that nothing looks larger than it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ingero.errors import UsageError
from ingero.model.sites import Sites
from ingero.model.stack import Frame
from ingero.model.window import BUCKET_NAMES, Records
from ingero.serve.answers.query import Range
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.store.sites import SiteReader
from ingero.units import clean

NO_STACK = "[no stack]"


class What(NamedTuple):
    """What can be weighed, and in which unit."""

    column: str
    unit: str


WHAT = {
    "calls": What("count", "calls"),
    "samples": What("count", "samples of 20.4 ms"),
    "waits": What("ns", "nanoseconds"),
    "bytes": What("bytes", "bytes"),
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
    rows = _rows(sites, when, what, pid)
    if op is not None:
        rows = rows[_chosen(reader, rows, what, op)]
    names = dict(reader.rows("SELECT pid, comm FROM process WHERE node_id = ? ORDER BY start_ns", (node_id,)))
    frames = sites.stacks(np.unique(rows["stack"]).tolist())
    for owner, stack, weight in zip(
        rows["pid"].tolist(), rows["stack"].tolist(), rows[WHAT[what].column].tolist(), strict=True
    ):
        root = _plain(f"{names.get(owner) or '?'} ({owner})")
        yield ";".join([root, *_path(frames.get(stack, ()))]), weight


def _rows(sites: Sites, when: TimeRange, what: str, pid: int | None) -> Records:
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
