"""Which lines of a process cost most: where calls come from, where host time goes, what is waited for.

Sums per stack become sums per line (correlate/activity.py says which line of a stack is the
user's). Of each operation, thread and bucket only the heaviest lines are told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from ingero.correlate.activity import Place, places
from ingero.model.layout import Bucket, SampleFlag
from ingero.model.report import CodeLine
from ingero.model.sites import SAMPLE_NS, Sites
from ingero.model.window import BUCKET_NAMES, Records
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.sites import SiteReader

PER_GROUP = 5  # lines of one operation, thread or bucket
OPERATIONS = 12  # of one process, those with most time
THREADS = 8
LEAST_SHARE = 0.01  # of its operation or thread
_OPS = "SELECT id, name FROM op"


def process_lines(reader: Reader, wanted: TimeRange) -> dict[int, list[CodeLine]]:
    """By PID: calls, then time on a core, waits and holders of the interpreter's lock."""
    ops: dict[int, str] = dict(reader.rows(_OPS))
    found: dict[int, list[CodeLine]] = defaultdict(list)
    for node_id in sorted({each.node_id for each in reader.recordings()}):
        sites = SiteReader(reader.connection, node_id)
        for pid, lines in lines_by_process(sites, ops, wanted.from_ns, wanted.to_ns):
            found[pid].extend(lines)
    return dict(found)


def lines_by_process(
    sites: Sites, ops: Mapping[int, str], from_ns: int, to_ns: int
) -> Iterator[tuple[int, list[CodeLine]]]:
    calls, waits, samples = (ask(None, from_ns, to_ns) for ask in (sites.calls, sites.waits, sites.samples))
    pids = {
        int(pid) for rows in (calls, waits, samples) for pid in np.unique(rows["pid"][rows["stack"] != 0])
    }
    for pid in sorted(pids):
        mine = (rows[rows["pid"] == pid] for rows in (calls, waits, samples))
        yield pid, list(_lines(sites, ops, *mine))


def _lines(
    sites: Sites, ops: Mapping[int, str], calls: Records, waits: Records, samples: Records
) -> Iterator[CodeLine]:
    yield from _calls(sites, ops, calls)
    yield from _on_core(sites, samples)
    yield from _waits(sites, waits)
    yield from _holders(sites, waits, samples)


def _heaviest_groups(rows: Records, key: str, weight: str, most: int) -> list[tuple[int, Records]]:
    groups = [(int(value), rows[rows[key] == value]) for value in np.unique(rows[key])]
    return sorted(groups, key=lambda group: (-float(group[1][weight].sum()), group[0]))[:most]


def _worth(sites: Sites, rows: Records, weight: str) -> list[Place]:
    found = places(sites, _sums(rows, weight))
    return [each for each in found[:PER_GROUP] if each.share >= LEAST_SHARE]


def _sums(rows: Records, column: str) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for stack, value in zip(rows["stack"].tolist(), rows[column].tolist(), strict=True):
        sums[stack] += value
    return sums


def _of_line(rows: Records, place: Place) -> Records:
    return rows[np.isin(rows["stack"], place.stacks)]


def _line(what: str, place: Place, ns: float, count: float) -> CodeLine:
    source = place.source
    inner = next((each.function for each in place.stack if each.function), "?")
    return CodeLine(
        what,
        source.file if source else None,
        source.line if source else None,
        source.function if source else inner,
        round(ns),
        round(count),
        place.share,
        stack_hash=place.stacks[0],
    )


def _calls(sites: Sites, ops: Mapping[int, str], calls: Records) -> Iterator[CodeLine]:
    for op, rows in _heaviest_groups(calls, "op", "ns", OPERATIONS):
        for place in _worth(sites, rows, "ns" if rows["ns"].any() else "count"):
            mine = _of_line(rows, place)
            size = round(mine["bytes"].sum())
            line = _line("call", place, mine["ns"].sum(), mine["count"].sum())
            yield replace(line, op=ops.get(op, "?"), bytes=size or None)


def _on_core(sites: Sites, samples: Records) -> Iterator[CodeLine]:
    """Time on a core outside CUDA calls: those are told as calls, and spinning in one is waiting."""
    collecting = int(SampleFlag.SAMPLE_COLLECTING)
    samples = samples[samples["bucket"] == int(Bucket.HOST_CPU)]
    for tid, rows in _heaviest_groups(samples, "tid", "count", THREADS):
        for place in _worth(sites, rows, "count"):
            mine = _of_line(rows, place)
            count = float(mine["count"].sum())
            in_collector = float(mine["count"][mine["flags"] & collecting > 0].sum())
            line = _line("cpu", place, count * SAMPLE_NS, count)
            yield replace(line, tid=tid, collecting_share=round(in_collector / count, 4))


def _waits(sites: Sites, waits: Records) -> Iterator[CodeLine]:
    for tid, of_thread in _heaviest_groups(waits, "tid", "ns", THREADS):
        known = of_thread[(of_thread["bucket"] >= 0) & (of_thread["bucket"] < len(BUCKET_NAMES))]
        for bucket, rows in _heaviest_groups(known, "bucket", "ns", len(BUCKET_NAMES)):
            for place in _worth(sites, rows, "ns"):
                mine = _of_line(rows, place)
                line = _line("wait", place, mine["ns"].sum(), mine["count"].sum())
                yield replace(line, tid=tid, bucket=BUCKET_NAMES[bucket])


def _holders(sites: Sites, waits: Records, samples: Records) -> Iterator[CodeLine]:
    """Threads that others waited for with the interpreter's lock, and where they were seen with it."""
    held = waits[(waits["gil"] > 0) & (waits["holder_tid"] > 0)]
    for tid, rows in _heaviest_groups(held, "holder_tid", "ns", THREADS):
        theirs = samples[samples["tid"] == tid]
        holding = theirs[theirs["flags"] & int(SampleFlag.SAMPLE_GIL) > 0]
        seen = holding if len(holding) else theirs
        for place in _worth(sites, seen, "count"):
            count = float(_of_line(seen, place)["count"].sum())
            line = _line("gil", place, count * SAMPLE_NS, count)
            yield replace(line, tid=tid, bucket="lock_wait", held_ns=round(rows["ns"].sum()))
