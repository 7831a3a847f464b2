"""Who held which GPU, and what it did meanwhile: one row per look at a GPU and process on it.

Where the driver was asked, a look is its sample: who was on the GPU, how busy each kept it.
Where it was not, it is a second in which a process fed a GPU, and the GPU was idle for as
long as its feeding thread left it without work: an estimate, and said to be one.
A GPU that several held is divided by their use of it; where nobody used it, or that is not
known, into equal parts. So the parts of a second sum to that second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model.finding import Finding
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS, GAP_COLUMNS
from ingero.units import HOUR, SECOND

LONGEST_NS = 3 * SECOND  # between two samples; what is longer was not looked at
UNKNOWN_GPU = -1
ROW = np.dtype(
    [
        ("node", "<i8"),
        ("gpu", "<i8"),
        ("process", "<i8"),  # 0: nobody we know
        ("at_ns", "<i8"),  # when it began
        ("held_ns", "<f8"),
        ("busy_ns", "<f8"),  # NaN: not known
        ("clock", "<f8"),  # of its maximum; NaN: not known
        ("memory", "<f8"),  # bytes it has there; NaN: not known
    ]
)
Rows = NDArray[np.void]
Floats = NDArray[np.float64]
_SAMPLES = """
    SELECT s.node_id, s.gpu_id, s.at_ns, s.gpu_share, CAST(s.sm_clock_mhz AS REAL) / g.clock
    FROM gpu_sample s
    LEFT JOIN (SELECT node_id, gpu_id, MAX(sm_clock_max_mhz) AS clock FROM gpu GROUP BY 1, 2) g
        ON g.node_id = s.node_id AND g.gpu_id = s.gpu_id
    WHERE s.at_ns >= ? AND s.at_ns < ? AND NOT s.lost ORDER BY s.node_id, s.gpu_id, s.at_ns"""
_ON_IT = """
    SELECT node_id, gpu_id, at_ns, COALESCE(process_id, 0), sm_share, memory_bytes FROM gpu_process
    WHERE at_ns >= ? AND at_ns < ? AND NOT graphics"""
# The GPU is busy for as long as a feeding thread of a process is there and does not leave it without work.
_FED = f"""
    SELECT t.node_id, t.process_id, t.start_ns, w.end_ns - w.start_ns,
        MAX(0, MAX({" + ".join(f"t.{column}" for column in BUCKET_COLUMNS)}
            - ({" + ".join(f"t.{column}" for column in GAP_COLUMNS)})))
    FROM thread_second t
    JOIN window w ON w.node_id = t.node_id AND w.start_ns = t.start_ns
    WHERE t.start_ns >= ? AND t.start_ns < ? AND t.feeder AND t.process_id > 0
    GROUP BY t.node_id, t.process_id, t.start_ns"""
_GPUS_OF = """
    SELECT process_id, gpu_id FROM event WHERE {ranges} AND gpu_id IS NOT NULL AND process_id > 0
    GROUP BY process_id, gpu_id"""


@dataclass(frozen=True, slots=True)
class Use:
    """`rows` of everybody, `free` of GPUs that nobody held."""

    rows: Rows
    free: Rows
    by_driver: frozenset[int]  # nodes
    by_calls: frozenset[int]


def use_within(reader: Reader, when: TimeRange) -> Use:
    """Of every node in the reader."""
    rows, free = by_driver(reader, when)
    asked = frozenset(int(node) for node in np.unique(np.concatenate([rows["node"], free["node"]])))
    called = _by_calls(reader, when)
    called = called[~np.isin(called["node"], list(asked))]
    others = frozenset(int(node) for node in np.unique(called["node"]))
    return Use(np.concatenate([rows, called]), free, asked, others)


def _table(rows: list[tuple[Any, ...]], columns: int) -> NDArray[np.float64]:
    """Unknown is NaN. Instants lose less than a microsecond here, and are taken from integers below."""
    return np.array(
        [[np.nan if not isinstance(value, int | float) else value for value in row] for row in rows],
        np.float64,
    ).reshape(-1, columns)


def by_driver(reader: Reader, when: TimeRange) -> tuple[Rows, Rows]:
    """By its word alone: who held GPUs, and GPUs that nobody held."""
    between = (when.from_ns, when.to_ns)
    told = reader.rows(_SAMPLES, between)
    samples = np.zeros(len(told), ROW)
    if not told:
        return samples, samples
    keys = [(row[0], row[1], row[2]) for row in told]
    values = _table([row[3:] for row in told], 2)
    samples["node"], samples["gpu"], samples["at_ns"] = np.array(keys, np.int64).T
    samples["held_ns"] = _lengths(samples)
    samples["busy_ns"] = np.clip(values[:, 0], 0.0, 1.0) * samples["held_ns"]
    samples["clock"], samples["memory"] = np.clip(values[:, 1], 0.0, 1.0), np.nan
    samples["at_ns"] -= samples["held_ns"].astype(np.int64)  # from then on
    place = {key: number for number, key in enumerate(keys)}
    on_it = [row for row in reader.rows(_ON_IT, between) if (row[0], row[1], row[2]) in place]
    at = np.array([place[row[0], row[1], row[2]] for row in on_it], np.int64)
    held = samples[at] if len(at) else samples[:0]
    held["process"] = [row[3] for row in on_it]
    more = _table([row[4:] for row in on_it], 2)
    held["memory"] = more[:, 1]
    share = parts(at, more[:, 0], len(samples))
    held["held_ns"] *= share
    held["busy_ns"] *= share
    return held, np.delete(samples, at)


def _lengths(samples: Rows) -> NDArray[np.float64]:
    """A sample tells of the time since the one before it."""
    length = np.diff(samples["at_ns"], prepend=samples["at_ns"][:1] - SECOND).astype(np.float64)
    other = np.r_[True, (np.diff(samples["node"]) != 0) | (np.diff(samples["gpu"]) != 0)]
    length[other] = SECOND
    return np.where(length > LONGEST_NS, SECOND, np.maximum(length, 0.0))


def parts(at: NDArray[np.int64], use: NDArray[np.float64], places: int) -> NDArray[np.float64]:
    """How much of its place each one has: by use where all of it is known and there is some."""
    count = np.bincount(at, minlength=places)[at]
    known = np.bincount(at, np.isnan(use), places)[at] == 0
    total = np.bincount(at, np.nan_to_num(use), places)[at]
    by_use = known & (total > 0)
    return np.where(by_use, np.nan_to_num(use) / np.where(by_use, total, 1.0), 1.0 / np.maximum(count, 1))


def _by_calls(reader: Reader, when: TimeRange) -> Rows:
    told = [row for row in reader.rows(_FED, (when.from_ns, when.to_ns)) if _sensible(row)]
    gpus = _gpus_of(reader, when)
    wide = [(*row, gpu) for row in told for gpu in gpus.get(row[1], (UNKNOWN_GPU,))]
    rows = np.zeros(len(wide), ROW)
    if not wide:
        return rows
    table = np.array(wide, np.int64)
    rows["node"], rows["process"], rows["at_ns"], rows["gpu"] = table[:, [0, 1, 2, 5]].T
    length = np.clip(table[:, 3], 0, LONGEST_NS).astype(np.float64)
    busy = np.clip(table[:, 4].astype(np.float64), 0.0, length)
    # Where it is not known which GPU it is, it is its own.
    same = np.where(rows["gpu"] == UNKNOWN_GPU, -rows["process"] - 1, rows["gpu"])
    _, at = np.unique(np.column_stack([rows["node"], same, rows["at_ns"]]), axis=0, return_inverse=True)
    at = at.reshape(-1)
    share = parts(at, busy, int(at.max()) + 1)
    together = np.minimum(np.bincount(at, busy)[at], length)  # busy for one or the other
    rows["held_ns"], rows["busy_ns"] = share * length, share * together
    rows["clock"] = rows["memory"] = np.nan
    return rows


def _sensible(row: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int) and value >= 0 for value in row)


def _gpus_of(reader: Reader, when: TimeRange) -> dict[int, tuple[int, ...]]:
    ranges = reader.id_ranges(when.from_ns, when.to_ns)
    if not ranges:
        return {}
    within = " OR ".join(f"id BETWEEN {first} AND {last}" for first, last in ranges)
    found: dict[int, tuple[int, ...]] = {}
    for process, gpu in reader.rows(_GPUS_OF.format(ranges=f"({within})")):
        found[process] = (*found.get(process, ()), gpu)
    return found


# What findings stand for, of the time that GPUs were held and idle: while a trace runs, and later.


def lost_to(findings: Iterable[Finding], rows: Rows) -> dict[str, Floats]:
    """Of each row of a process the time lost to each kind of its findings: together at most what was idle."""
    idle = np.nan_to_num(rows["held_ns"] - rows["busy_ns"])
    claims: dict[str, Floats] = {}
    for each in findings:
        claims[each.kind] = claims.get(each.kind, 0.0) + _claim(each, rows, idle)
    together = sum(claims.values(), np.zeros(len(rows)))
    cut = np.divide(idle, together, out=np.ones_like(idle), where=together > idle)
    return {kind: claim * cut for kind, claim in claims.items()}


def _claim(finding: Finding, rows: Rows, idle: Floats) -> Floats:
    """Idle time of each row that this finding stands for."""
    spans = finding.episodes or [(finding.first_ns, finding.last_ns)]
    within = np.zeros(len(rows), bool)
    for first_ns, last_ns in spans:
        within |= (rows["at_ns"] >= first_ns) & (rows["at_ns"] < last_ns)
    lost_ns = finding.effect.excess_ns
    if lost_ns is None:
        lost_ns = finding.gain.ns if finding.gain else sum(each.ns for each in finding.causes)
    length_ns = sum(max(last_ns - first_ns, 0) for first_ns, last_ns in spans)
    if not lost_ns or not length_ns:
        return np.zeros(len(rows))
    # So much of each second it held; a finding cannot cost more than its GPU was idle.
    said = rows["held_ns"][within].sum() * min(1.0, lost_ns / length_ns)
    there = idle[within].sum()
    return np.where(within, idle * (min(1.0, said / there) if there else 0.0), 0.0)


def money_of(ns: Floats, price: Floats) -> float | None:
    """Of time and what an hour of it costs; None: one of the GPUs has no price."""
    return None if np.isnan(price).any() else float((ns * price).sum()) / HOUR
