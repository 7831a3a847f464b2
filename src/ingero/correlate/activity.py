"""What a thread does on a core, from samples of it: in which CUDA call, in the collector, at which line.

A call that was not watched shows all the same: its function is among the native frames of
the sample. And a line whose work is making calls counts as making them, with all that a
framework does around each: that is what fewer calls would save.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingero.correlate.lines import source_of
from ingero.model.facts import Facts
from ingero.model.finding import SourceLine
from ingero.model.layout import SampleFlag
from ingero.model.sites import SAMPLE_NS
from ingero.model.span_sums import Span
from ingero.model.stack import Frame
from ingero.model.window import BUCKET_NAMES

CALLING = 0.10  # of a line's samples within CUDA calls: then calling is what the line is about
FEW = 10  # samples of a line; with fewer, all such lines together decide
CUDA_MODULE = re.compile(r"(^|/)lib(cuda|cudart|nccl)(\.|-)")
# What a call is about, by its name; the first that fits.
KINDS = (
    (re.compile(r"^nccl"), "collective"),
    (re.compile(r"Memcpy"), "copy"),
    (
        re.compile(r"Capture|GraphInstantiate|GraphAdd|GraphExecUpdate|GraphDestroy|GraphExecDestroy"),
        "capture",
    ),
    (re.compile(r"GraphLaunch"), "graph"),
    (re.compile(r"Synchronize|EventQuery|StreamQuery|EventElapsed"), "sync"),
    (re.compile(r"Launch|Memset|GetDevice$|GetLastError|IsCapturing|KernelGetFunction|Event"), "launch"),
    (re.compile(r"Free|Unmap|MemRelease|AddressFree"), "free"),
    (re.compile(r"[Aa]lloc|MemMap|MemCreate|AddressReserve|MemSetAccess|MemGetInfo"), "alloc"),
    (re.compile(r"Module|Library|CtxCreate|PrimaryCtx|Init$"), "module"),
)
CALLS = frozenset({"copy", "capture", "graph", "launch", "sync", "free", "alloc", "collective"})
ON_CORE = ("host_cpu", "cuda_cpu")


@dataclass(frozen=True, slots=True)
class Doing:
    """Something a thread did: `what` is a kind of call, gc, or empty for work of its own."""

    bucket: str
    what: str
    source: SourceLine | None
    ns: float
    stack: int = 0  # one that has this line


def kind_of_call(name: str) -> str:
    return next((kind for pattern, kind in KINDS if pattern.search(name)), "")


def call_of(frames: Sequence[Frame]) -> str:
    """The kind of the outermost CUDA function among native frames; empty: in none."""
    inside = ""
    for frame in frames:
        if frame.kind == "native" and frame.module and CUDA_MODULE.search(frame.module):
            inside = kind_of_call(frame.function or "") or inside
    return inside


Key = tuple[str, str, SourceLine | None]  # bucket, what, line
Counts = dict[Key, float]


class Activities:
    """What threads of one recording do; asks for stacks once."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._frames: dict[int, tuple[Frame, ...]] = {}
        self._stacks: dict[SourceLine | None, int] = {}

    def of(self, pid: int, tid: int, stretches: Sequence[Sequence[Span]]) -> list[list[Doing]]:
        """For each stretch, most first; what a line is about is told from all of them together."""
        counted = [self._counts(pid, tid, spans) for spans in stretches]
        about = _about_lines(counted)
        made = []
        for counts in counted:
            named: Counts = defaultdict(float)
            for (bucket, what, source), count in counts.items():
                named[bucket, what or about.get(source, ""), source] += count
            doings = [
                Doing(*key, count * SAMPLE_NS, self._stacks.get(key[2], 0)) for key, count in named.items()
            ]
            made.append(sorted(doings, key=lambda each: -each.ns))
        return made

    def _counts(self, pid: int, tid: int, spans: Iterable[Span]) -> Counts:
        counts: Counts = defaultdict(float)
        for from_ns, to_ns in spans:
            rows = self._facts.sites.samples(pid, from_ns, to_ns)
            rows = rows[rows["tid"] == tid]
            missing = [stack for stack in set(rows["stack"].tolist()) if stack not in self._frames]
            self._frames |= self._facts.sites.stacks(missing)
            for bucket, op, flags, stack, count in rows[["bucket", "op", "flags", "stack", "count"]].tolist():
                frames = self._frames.get(stack, ())
                if not 0 <= bucket < len(BUCKET_NAMES):  # the file may come from anybody
                    continue
                source = source_of(frames)
                self._stacks.setdefault(source, stack)
                counts[BUCKET_NAMES[bucket], self._what(op, flags, frames), source] += count
        return counts

    def _what(self, op: int, flags: int, frames: Sequence[Frame]) -> str:
        if flags & int(SampleFlag.SAMPLE_COLLECTING):
            return "gc"
        known = self._facts.ops.get(op)
        return kind_of_call(known.name) if known is not None else call_of(frames)


def _about_lines(counted: Iterable[Counts]) -> dict[SourceLine | None, str]:
    """What a line does between its calls is part of calling, where that is what the line is about."""
    by_line: dict[SourceLine | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for counts in counted:
        for (bucket, what, source), count in counts.items():
            if bucket in ON_CORE:
                by_line[source][what] += count
    pooled: dict[str, float] = defaultdict(float)
    few = {source for source, kinds in by_line.items() if sum(kinds.values()) < FEW}
    for source in few:
        for what, count in by_line[source].items():
            pooled[what] += count
    return {source: _about(pooled if source in few else kinds) for source, kinds in by_line.items()}


def _about(kinds: dict[str, float]) -> str:
    calls = {what: count for what, count in kinds.items() if what in CALLS}
    if not calls or sum(calls.values()) < CALLING * sum(kinds.values()):
        return ""
    return max(calls, key=lambda what: calls[what])
