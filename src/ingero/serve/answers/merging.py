"""What `ingero merge` answers: what is in the result now, and which clocks disagree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ingero.errors import UsageError
from ingero.model.clocks import ClockOffset
from ingero.store.clock_rows import GIVEN_ERROR_NS
from ingero.store.merge.clocks import ClockNote
from ingero.store.merge.result import merge
from ingero.store.merge.source import Part
from ingero.units import clean, parse_duration

__all__ = ["ClockNote", "MergeAnswer", "MergedNode", "MergedPart", "merge_databases", "offset_of"]

_OFFSET = re.compile(
    r"(?P<node>.+)=(?P<sign>[+-]?)(?P<ahead>[\d.]+\s*[a-zµ]+)(~(?P<error>[\d.]+\s*[a-zµ]+))?"
)


class MergedPart(msgspec.Struct, frozen=True):
    """What one file has of one node."""

    file: str
    node: str
    recordings: int


class MergedNode(msgspec.Struct, frozen=True):
    """A node of the result; instants are Unix-epoch nanoseconds."""

    node: str
    recordings: int
    events: int
    from_ns: int | None
    to_ns: int | None


class MergeAnswer(msgspec.Struct, frozen=True):
    output: str
    changed: bool  # False: the result had everything already
    added: list[MergedPart]
    already_there: list[MergedPart]
    nodes: list[MergedNode]
    clocks: list[ClockNote]
    apart: list[str]  # nodes that no other node's recording overlaps in time
    doubtful: list[str]  # names that seem to be of two machines: recorded at one time, booted at two


def merge_databases(
    paths: Sequence[Path],
    output: Path,
    force_node: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
    offsets: Sequence[ClockOffset] = (),
) -> MergeAnswer:
    """Merge, and say what came of it."""
    found = merge(paths, output, force_node, progress, offsets)
    nodes = [MergedNode(*row) for row in found.nodes]
    return MergeAnswer(
        str(output),
        found.changed,
        _parts(part for part in found.taken if part.path != output),
        _parts(part for part in found.known if part.path != output),
        nodes,
        found.clocks,
        _apart(nodes),
        found.doubtful,
    )


def offset_of(text: str) -> ClockOffset:
    """As a user writes it: `gpu-node-02=80ms`, behind `gpu-node-03=-33ms~2ms`."""
    found = _OFFSET.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"cannot read the clock offset {clean(text, 60)!r}",
            hint="Write it like gpu-node-02=80ms, or gpu-node-03=-33ms~2ms: behind, and how sure.",
        )
    ahead_ns = parse_duration(found["ahead"])
    error_ns = parse_duration(found["error"]) if found["error"] else GIVEN_ERROR_NS
    return ClockOffset(found["node"], 0, -ahead_ns if found["sign"] == "-" else ahead_ns, error_ns)


def _parts(parts: Iterable[Part]) -> list[MergedPart]:
    return [MergedPart(str(part.path), part.node, len(part.recordings)) for part in parts]


def _apart(nodes: list[MergedNode]) -> list[str]:
    timed = [(each.from_ns or 0, each.to_ns or 0, each.node) for each in nodes if each.recordings]
    return [
        node
        for start, end, node in timed
        if len(timed) > 1 and not any(a < end and start < b for a, b, other in timed if other != node)
    ]
