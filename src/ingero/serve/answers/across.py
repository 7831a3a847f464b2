"""The nodes of a merged database looked at together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ingero.correlate.timeline import Timeline
from ingero.detectors.across import Across, judge_across
from ingero.model.clocks import Clocks
from ingero.model.finding import Finding
from ingero.model.report import NotWatched
from ingero.store.clock_rows import read_offsets
from ingero.store.reader import Reader

WAITING = "who waits for whom across nodes"
NOT_TOGETHER = Across(not_watched=[NotWatched(WAITING, "only some processes were asked for")])


def across_nodes(
    reader: Reader,
    seen: Mapping[str, Sequence[Timeline]],
    local: Mapping[str, Sequence[Finding]],
) -> Across:
    """Of each node the recording with most collectives counts."""
    chosen = {
        node: max(timelines, key=lambda each: len(each.facts.arrivals))
        for node, timelines in seen.items()
        if timelines
    }
    if len(chosen) < 2:
        return Across()
    return judge_across(chosen, Clocks.of(read_offsets(reader.connection)), local)


def across_recordings(path: Path, local: Mapping[str, Sequence[Finding]]) -> Across:
    """The same of a merged database whose nodes were diagnosed elsewhere: their last recordings."""
    with ExitStack() as readers, Reader(path) as whole:
        seen: dict[str, list[Timeline]] = {}
        for node in whole.nodes():
            reader = readers.enter_context(Reader(path, node))
            last = reader.recordings()[-1]
            seen[node] = [Timeline(reader.facts(last, last.started_ns, last.last_ns))]
        return across_nodes(whole, seen, local)
