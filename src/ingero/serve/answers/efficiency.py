"""How well a job used what it held, and how many more like it would fit.

Busy and clock come from the driver's samples, pace from calls that were counted, goodput
from the steps a job said it did: a step said twice by one rank of one job was done again.
A job is what the batch system calls one, else the ranks of one command; a process that is no
rank of anything is a job by itself. Unknown is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from ingero.fleet.push.taking import command_digest
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.units import HOUR, MINUTE

Rows = NDArray[np.void]
_CALLS = """
    SELECT t.process_id, t.start_ns / {minute}, SUM(t.count) FROM operation_second t
    JOIN op o ON o.id = t.op_id AND o.kind IN ('launch', 'graph')
    WHERE t.start_ns >= ? AND t.start_ns < ? AND t.process_id > 0 GROUP BY 1, 2"""
_RECORDED = "SELECT DISTINCT start_ns / {minute} FROM window WHERE start_ns >= ? AND start_ns < ?"
_STEPS = """
    SELECT a.process_id, a.number, a.start_ns FROM annotation a JOIN string s ON s.id = a.key_id
    WHERE s.text = 'step' AND a.number IS NOT NULL AND a.start_ns >= ? AND a.start_ns < ?"""
_SEATS = """
    SELECT p.id, p.rank, COALESCE(j.value, c.job), p.cmdline FROM process p
    LEFT JOIN container c ON c.cgroup_id = p.cgroup_id AND c.node_id = p.node_id
    LEFT JOIN process_label j ON j.process_id = p.id AND j.key = 'job'"""
_MEMORY = """
    SELECT g.node_id, g.gpu_id, MAX(g.memory_bytes), AVG(s.memory_used_bytes), AVG(s.gpu_share)
    FROM gpu g JOIN gpu_sample s ON s.node_id = g.node_id AND s.gpu_id = g.gpu_id
    WHERE s.at_ns >= ? AND s.at_ns < ? AND NOT s.lost GROUP BY 1, 2"""


class Efficiency(msgspec.Struct, frozen=True):
    """Shares are 0 to 1; None where nothing tells."""

    busy_share: float | None = None  # of the time it held a GPU
    clock_share: float | None = None  # the SM clock against its maximum
    pace_share: float | None = None  # launches per minute against its best hour, or its best minute
    pace_against: str | None = None  # hour, minute
    goodput_share: float | None = None  # steps that counted, of all it did
    steps: int | None = None  # done, also those done again
    more_jobs: int | None = None  # of this kind, on the GPUs of its nodes: by memory and by time


@dataclass
class EfficiencyFacts:
    launches: dict[int, dict[int, int]] = field(default_factory=dict)  # by process and minute
    recorded: frozenset[int] = frozenset()  # minutes
    steps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # number, and when
    seats: dict[int, tuple[str, int]] = field(default_factory=dict)  # of which job it is which rank
    gpus: dict[tuple[int, int], tuple[float, float, float]] = field(default_factory=dict)


def facts_within(reader: Reader, when: TimeRange) -> EfficiencyFacts:
    between, found = (when.from_ns, when.to_ns), EfficiencyFacts()
    for process, minute, count in reader.rows(_CALLS.format(minute=MINUTE), between):
        found.launches.setdefault(process, {})[minute] = count
    found.recorded = frozenset(each for (each,) in reader.rows(_RECORDED.format(minute=MINUTE), between))
    for process, number, at_ns in reader.rows(_STEPS, between):
        found.steps.setdefault(process, []).append((number, at_ns))
    for process, rank, job, command in reader.rows(_SEATS):
        named = job or command_digest(command or "")
        if rank is not None and named:
            found.seats[process] = (named, rank)
    for node, gpu, size, used, share in reader.rows(_MEMORY, between):
        if None not in (size, used, share):
            found.gpus[node, gpu] = (float(size), float(used), float(share))
    return found


def efficiency_of(rows: Rows, members: list[int], facts: EfficiencyFacts) -> Efficiency:
    known = ~np.isnan(rows["busy_ns"])
    held = float(rows["held_ns"][known].sum())
    busy = float(rows["busy_ns"][known].sum()) / held if held else None
    pace, against = _pace(members, facts)
    goodput, done = _goodput(members, facts)
    return Efficiency(
        busy,
        _clock(rows),
        pace,
        against,
        goodput,
        done,
        _more(rows, members, facts, busy),
    )


def _clock(rows: Rows) -> float | None:
    """While it computes: a GPU that has nothing to do clocks down."""
    weight = np.where(np.isnan(rows["clock"]), 0.0, np.nan_to_num(rows["busy_ns"]))
    return float((np.nan_to_num(rows["clock"]) * weight).sum() / weight.sum()) if weight.sum() else None


def _pace(members: list[int], facts: EfficiencyFacts) -> tuple[float | None, str | None]:
    """The first and the last minute of a job are not whole. One in between without a launch counts."""
    minutes: dict[int, int] = {}
    for member in members:
        launches = facts.launches.get(member, {})
        first, last = min(launches, default=0), max(launches, default=0)
        for minute in launches.keys() | {each for each in facts.recorded if first < each < last}:
            minutes[minute] = minutes.get(minute, 0) + launches.get(minute, 0)
    inner = [minutes[minute] for minute in sorted(minutes)][1:-1]
    if len(inner) < 2:
        return None, None
    hour = HOUR // MINUTE
    if len(inner) >= 2 * hour:
        best = float(np.convolve(inner, np.ones(hour) / hour, "valid").max())
        return min(1.0, float(np.mean(inner)) / best) if best else None, "hour"
    return float(np.mean(inner)) / max(inner) if max(inner) else None, "minute"


def _goodput(members: list[int], facts: EfficiencyFacts) -> tuple[float | None, int | None]:
    """Steps that counted, and all: a rank that says a step again, restarted or not, did it again."""
    done = counted = 0
    for lives in _by_job([member for member in members if member in facts.steps], facts):
        steps = [number for member in lives for number, _ in facts.steps[member]]
        done += len(steps)
        counted += len(set(steps))
    return (counted / done, done) if done else (None, None)


def _by_job(members: list[int], facts: EfficiencyFacts) -> list[list[int]]:
    """Processes that were one rank of one job, one after the other; those at the same time are two jobs'."""
    spans = {each: _span(facts.steps[each]) for each in members}
    seats: dict[object, list[list[int]]] = {}
    for member in sorted(members, key=lambda each: spans[each]):
        lives = seats.setdefault(facts.seats.get(member, member), [])
        before = [each for each in lives if spans[each[-1]][1] < spans[member][0]]
        if before:
            before[-1].append(member)
        else:
            lives.append([member])
    return [each for lives in seats.values() for each in lives]


def _span(steps: list[tuple[int, int]]) -> tuple[int, int]:
    at = [at_ns for _, at_ns in steps]
    return min(at), max(at)


def _more(rows: Rows, members: list[int], facts: EfficiencyFacts, busy: float | None) -> int | None:
    """A GPU takes as many processes like these as its memory and time allow; a job may need several GPUs."""
    memory = rows["memory"][~np.isnan(rows["memory"])]
    nodes = set(rows["node"].tolist())
    if not len(memory) or not busy or not facts.gpus or not members:
        return None
    need = float(np.median(memory))
    gpus_of, each_gpu = _shape(rows, facts)
    room = [
        int(max(0.0, min((size - used) / need, (1.0 - share) / busy))) // each_gpu
        for (node, _), (size, used, share) in facts.gpus.items()
        if node in nodes and need > 0
    ]
    more = sum(room) // gpus_of
    while more and sum(min(each, more) for each in room) < more * gpus_of:
        more -= 1  # its ranks need GPUs of their own: room on one does not make up for none on another
    return more


def _shape(rows: Rows, facts: EfficiencyFacts) -> tuple[int, int]:
    """On how many GPUs one of these jobs is, in the median, and how many of its processes on each."""
    jobs: dict[object, set[tuple[int, int, object]]] = {}
    for row in np.unique(rows[["process", "node", "gpu"]]):
        process, node, gpu = (int(row[name]) for name in ("process", "node", "gpu"))
        job, rank = facts.seats.get(process, (process, process))
        jobs.setdefault(job, set()).add((node, gpu, rank))
    gpus = [len({(node, gpu) for node, gpu, _ in seats}) for seats in jobs.values()]
    each = [len(seats) / count for seats, count in zip(jobs.values(), gpus, strict=True)]
    return max(1, round(float(np.median(gpus)))), max(1, round(float(np.median(each))))
