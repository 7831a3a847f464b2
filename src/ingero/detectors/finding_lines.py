"""The line a finding is about, from what its detector says decides (`Detector.lines`).

Lines are told of findings there are; they never make one. Without stacks, or where no
line has a tenth of what decides, a finding has none.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from ingero.correlate.account import GrownLine
from ingero.correlate.activity import LEAST_SHARE, Place, heaviest
from ingero.correlate.loss import Lost
from ingero.correlate.steps import no_spikes
from ingero.correlate.timeline import Timeline
from ingero.detectors.detector import Case, Detector, LineChoice, State
from ingero.model.finding import Finding, Proof, SourceLine
from ingero.model.layout import Bucket, SampleFlag
from ingero.model.sites import SAMPLE_NS
from ingero.model.window import BUCKET_NAMES, Records
from ingero.model.words import BUCKETS
from ingero.units import SECOND, format_ns, format_rounded

ON_CORE = ("host_cpu", "cuda_cpu")
SPIKES = 40  # looked at, the latest
MOST = 4  # times less than the one that had most of a core, and it is not one of the crowd
SPIKE_SECONDS = 300
Weights = Mapping[int, float]  # by stack
Threads = frozenset[tuple[int, int]]  # (pid, tid); tid 0: all of the process


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about, as far as its line depends on it."""

    timeline: Timeline
    pid: int
    tid: int | None
    first_ns: int
    last_ns: int
    main: Lost | None = None
    ends: Threads = frozenset()
    culprits: tuple[int, ...] = ()  # of a thread or a process, most first
    crowd: Threads = frozenset()  # the job's other processes that had the cores it waited for
    event_ids: tuple[str, ...] = ()
    spikes: np.ndarray[tuple[int, int], np.dtype[np.int64]] = field(default_factory=no_spikes)


def _crowd(case: Case) -> Threads:
    """Those that had most of it, where the job itself had the lesser part."""
    if case.main is None or case.main.bucket != "runqueue":
        return frozenset()
    had: Counter[int] = Counter()
    for lost in case.causes:
        if lost.bucket == "runqueue" and lost.whose == "own":
            for part in lost.who:
                had[part.pid] += part.ns
    of_job = had.pop(case.job.pid, 0)
    if not had or had.total() < of_job:
        return frozenset()
    return frozenset((pid, 0) for pid, ns in had.items() if ns * MOST >= max(had.values()))


def subject_of_case(case: Case) -> Subject:
    main = case.main
    ends = frozenset(
        (lost.pid, lost.tid)
        for lost in case.causes
        if main is not None and lost.bucket == main.bucket and lost.direct == main.direct
    )
    return Subject(
        case.timeline,
        case.job.pid,
        case.job.tid,
        case.first_ns,
        case.last_ns,
        main,
        ends,
        tuple(part.pid for part in case.who),
        _crowd(case),
        spikes=case.job.spikes,
    )


def subject_of_state(state: State, timeline: Timeline) -> Subject:
    events = tuple(event for proof in state.proofs for event in proof.event_ids)
    last_ns = max(state.last_ns, state.first_ns + 1)
    return Subject(timeline, state.pid, state.tid, state.first_ns, last_ns, event_ids=events)


def with_line(
    finding: Finding, detector: Detector, subject: Subject, grown: GrownLine | None = None
) -> Finding:
    """The finding with its line, stack and the proof of both, where they are known.

    `grown`: the line whose samples grew with the finding's time decides, where there is one.
    """
    if grown is not None and grown.share >= LEAST_SHARE:
        sites = subject.timeline.facts.sites
        frames = sites.stacks([grown.stack]).get(grown.stack, ())
        there = Place(grown.source, frames, grown.ns, grown.share, (grown.stack,))
        finding = msgspec.structs.replace(finding, source=there.source, stack=there.frames())
        return _with_proofs(
            finding, [_proof(LineChoice("sample", "the largest part of that time is spent"), there, subject)]
        )
    told = [(line, place) for line in detector.lines if (place := place_of(line, subject)) is not None]
    if not told:
        return finding
    chosen = next((place for _, place in told if place.source is not None), told[0][1])
    finding = msgspec.structs.replace(finding, source=chosen.source, stack=chosen.frames())
    return _with_proofs(finding, [_proof(line, place, subject) for line, place in _distinct(told)])


def place_of(line: LineChoice, subject: Subject) -> Place | None:
    """Where one kind of evidence points to."""
    if line.along and (subject.main is None or subject.main.direct):
        return None
    return heaviest(subject.timeline.facts.sites, WEIGHTS[line.by](line, subject))


def _distinct(told: list[tuple[LineChoice, Place]]) -> Iterable[tuple[LineChoice, Place]]:
    seen: set[SourceLine] = set()
    for line, place in told:
        if place.source is not None and place.source not in seen:
            seen.add(place.source)
            yield line, place


def _proof(line: LineChoice, place: Place, subject: Subject) -> Proof:
    source, main = place.source, subject.main
    assert source is not None
    says = line.says or (f"thread {main.tid} ({main.comm}) {BUCKETS[main.bucket].spent}" if main else "")
    amount = format_rounded(place.share)
    if line.by in ("wait", "sample", "loss", "spike", "ns"):
        amount = f"{format_ns(place.weight)}, {amount}"
    return Proof(f"{says} at {source.function}() {source.file}:{source.line} ({amount})")


def _with_proofs(finding: Finding, proofs: list[Proof]) -> Finding:
    """Behind the other proofs of the first cause, or of the state."""
    if not finding.causes:
        return msgspec.structs.replace(finding, evidence=[*finding.evidence, *proofs])
    first, *others = finding.causes
    first = msgspec.structs.replace(first, evidence=[*first.evidence, *proofs])
    return msgspec.structs.replace(finding, causes=[first, *others])


# --- what each kind of evidence weighs, by stack ----------------------------------------


def _summed(rows: Records, column: str) -> Weights:
    sums: dict[int, float] = defaultdict(float)
    for stack, weight in zip(rows["stack"].tolist(), rows[column].tolist(), strict=True):
        sums[stack] += weight
    return sums


def _added(*parts: Weights) -> Weights:
    sums: dict[int, float] = defaultdict(float)
    for part in parts:
        for stack, weight in part.items():
            sums[stack] += weight
    return sums


def _ops(line: LineChoice, subject: Subject) -> list[int]:
    return [
        number
        for number, op in subject.timeline.facts.ops.items()
        if op.kind in (*line.kinds, *line.outside) and (not line.named or re.search(line.named, op.name))
    ]


def _calls(line: LineChoice, subject: Subject) -> Weights:
    rows = subject.timeline.facts.sites.calls(subject.pid, subject.first_ns, subject.last_ns)
    return _walked(_summed(rows[np.isin(rows["op"], _ops(line, subject))], line.by))


def _walked(weights: Weights) -> Weights:
    """Which calls have their stack walked is drawn at random: those stand for the others."""
    return {stack: weight for stack, weight in weights.items() if stack}


def _kept(_line: LineChoice, subject: Subject) -> Weights:
    facts = subject.timeline.facts
    return _walked(_summed(facts.sites.kept(subject.pid, facts.from_ns, facts.to_ns), "bytes"))


def _last(line: LineChoice, subject: Subject) -> Weights:
    facts = subject.timeline.facts
    stack = facts.sites.last_call(subject.pid, _ops(line, subject), max(subject.last_ns, facts.to_ns))
    return {stack: 1.0}


def _event(_line: LineChoice, subject: Subject) -> Weights:
    sites = subject.timeline.facts.sites
    stack = next(filter(None, map(sites.of_event, subject.event_ids)), 0)
    return {stack: 1.0}


def _threads(line: LineChoice, subject: Subject) -> Threads:
    if line.of == "end":
        return subject.ends
    if line.of == "holder":
        return _holders(subject)
    if line.of == "culprit":
        return frozenset((pid, 0) for pid in subject.culprits[:1])
    if line.of == "crowd":
        return subject.crowd
    return frozenset({(subject.pid, (subject.tid or 0) if line.of == "feeder" else 0)})


def _of(rows: Records, tid: int) -> Records:
    return rows[rows["tid"] == tid] if tid else rows


def _numbers(buckets: Iterable[str]) -> list[int]:
    return [BUCKET_NAMES.index(name) for name in buckets]


def _waits(line: LineChoice, subject: Subject) -> Weights:
    parts = []
    for pid, tid in _threads(line, subject):
        rows = _of(subject.timeline.facts.sites.waits(pid, subject.first_ns, subject.last_ns), tid)
        rows = rows[np.isin(rows["bucket"], _numbers(line.buckets)) & ((rows["gil"] > 0) == line.gil)]
        seen = rows[~np.isin(rows["op"], _ops(line, subject))]
        rows = seen if line.outside and len(seen) else rows
        parts.append(_summed(rows, "ns"))
    return _added(*parts)


def _samples(line: LineChoice, subject: Subject) -> Weights:
    parts = []
    for pid, tid in _threads(line, subject):
        rows = _of(subject.timeline.facts.sites.samples(pid, subject.first_ns, subject.last_ns), tid)
        if line.collecting:
            rows = rows[rows["flags"] & int(SampleFlag.SAMPLE_COLLECTING) > 0]
        elif line.of == "holder":
            holding = rows["flags"] & int(SampleFlag.SAMPLE_GIL) > 0
            rows = rows[holding] if holding.any() else rows
        rows = rows[np.isin(rows["bucket"], _numbers(line.buckets or ON_CORE))]
        parts.append(_summed(rows, "count"))
    return {stack: count * SAMPLE_NS for stack, count in _added(*parts).items()}


def _loss(line: LineChoice, subject: Subject) -> Weights:
    """Waits in the bucket most was lost to, or what the thread computed where it did."""
    if subject.main is None:
        return {}
    bucket = subject.main.bucket
    narrowed = LineChoice(line.by, line.says, line.of, buckets=(bucket,), gil=subject.main.gil)
    if bucket in ON_CORE:
        return _samples(narrowed, subject)
    return _waits(narrowed, subject) or _samples(narrowed, subject)


def _holders(subject: Subject) -> Threads:
    """The threads that had the interpreter's lock while the feeding thread waited for it."""
    rows = subject.timeline.facts.sites.waits(subject.pid, subject.first_ns, subject.last_ns)
    rows = rows[(rows["tid"] == (subject.tid or 0)) & (rows["gil"] > 0) & (rows["holder_tid"] > 0)]
    held: dict[int, float] = defaultdict(float)
    for tid, ns in zip(rows["holder_tid"].tolist(), rows["ns"].tolist(), strict=True):
        held[tid] += ns
    if held:
        return frozenset({(subject.pid, max(held, key=lambda tid: (held[tid], -tid)))})
    return frozenset((subject.pid, tid) for tid in subject.culprits[:1])


def _spike(_line: LineChoice, subject: Subject) -> Weights:
    """What the feeding thread waits for within the long iterations, and computes only then."""
    sites, tid = subject.timeline.facts.sites, subject.tid or 0
    waited = []
    for start, excess in subject.spikes[-SPIKES:].tolist():
        rows = _of(sites.waits(subject.pid, start, start + excess), tid)
        waited.append(_summed(rows[rows["bucket"] != int(Bucket.GPU_WAIT)], "ns"))
    return _added(*waited, _computed_in_spikes(subject))


def _computed_in_spikes(subject: Subject) -> Weights:
    """Samples are counted by the second: a stack belongs to the spikes as far as it comes with them."""
    last_ns = subject.last_ns
    first_ns = max(subject.first_ns, last_ns - SPIKE_SECONDS * SECOND)
    sites = subject.timeline.facts.sites
    rows = _of(sites.samples_by_second(subject.pid, first_ns, last_ns), subject.tid or 0)
    seconds, at = np.unique(rows["start_ns"], return_inverse=True)
    if len(seconds) < 2:
        return {}
    in_spikes = _overlaps(seconds, subject.spikes)
    spread = float(in_spikes.var())
    stacks, which = np.unique(rows["stack"], return_inverse=True)
    counts = np.zeros((len(stacks), len(seconds)))
    np.add.at(counts, (which, at), rows["count"])
    if not spread:
        return {}
    slopes = ((counts - counts.mean(axis=1, keepdims=True)) * (in_spikes - in_spikes.mean())).mean(axis=1)
    weights = np.maximum(slopes / spread, 0) * in_spikes.sum() * SAMPLE_NS
    return dict(zip(stacks.tolist(), weights.tolist(), strict=True))


def _overlaps(
    seconds: NDArray[np.int64], spikes: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> NDArray[np.float64]:
    """How much of each second lies in a spike."""
    starts, ends = spikes[:, 0][None], (spikes[:, 0] + spikes[:, 1])[None]
    shared = np.minimum(ends, seconds[:, None] + SECOND) - np.maximum(starts, seconds[:, None])
    return np.asarray(np.maximum(shared, 0).sum(axis=1), np.float64)


WEIGHTS: dict[str, Callable[[LineChoice, Subject], Weights]] = {
    "ns": _calls,
    "count": _calls,
    "bytes": _calls,
    "kept": _kept,
    "last": _last,
    "event": _event,
    "wait": _waits,
    "sample": _samples,
    "loss": _loss,
    "spike": _spike,
}
