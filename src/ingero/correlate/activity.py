"""What a thread does on a core, from samples of it, and which line is the one to change."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ingero.model.facts import Facts
from ingero.model.finding import SourceLine, StackFrame
from ingero.model.layout import SampleFlag
from ingero.model.sites import SAMPLE_NS, Sites
from ingero.model.span_sums import Span
from ingero.model.stack import Frame
from ingero.model.window import BUCKET_NAMES

# What a thread does on a core, from samples of it: in which CUDA call, in the collector, at which line.
#
# A call that was not watched shows all the same: its function is among the native frames of
# the sample. And a line whose work is making calls counts as making them, with all that a
# framework does around each: that is what fewer calls would save.

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


# From stacks to the line to change.
#
# The user's own line is the innermost Python frame whose file is neither installed
# (`site-packages`, `dist-packages`), nor the standard library's (`lib/python3.x`, its
# zip, `<frozen importlib...>` and the like). Everything else is the user's: `<string>`,
# notebook cells, a frozen program. Where a stack has no such frame, the innermost
# Python frame stands for it: better the library's line than none.


INSTALLED = re.compile(r"(^|/)(site|dist)-packages/")
STANDARD = re.compile(r"(^|/)lib(32|64)?/(python|pypy)\d+(\.\d+)?t?/|(^|/)python\d+\.zip/")
FROZEN = re.compile(r"<frozen ([\w.]+)>")
LEAST_SHARE = 0.10  # of what decides: below it "the line" would be one of many
LOOKED_AT = 2_000  # stacks, the heaviest ones: the rest weighs nothing
SHOWN_FRAMES = 128


@dataclass(frozen=True, slots=True)
class Place:
    """The line with most of what was asked for, and the stack that has most of it."""

    source: SourceLine | None  # None: no Python frame was seen
    stack: tuple[Frame, ...]
    weight: float
    share: float  # of all of it, what has no stack included
    stacks: tuple[int, ...]  # with this line, the heaviest first

    def frames(self) -> list[StackFrame]:
        return [
            StackFrame(each.kind, each.function or None, each.file, each.line, each.module)
            for each in self.stack[:SHOWN_FRAMES]
        ]


@lru_cache(maxsize=1_000)
def is_users(file: str | None) -> bool:
    """Whether a Python file is the user's own."""
    if not file:
        return False
    frozen = FROZEN.fullmatch(file)
    if frozen:
        return frozen[1].partition(".")[0] not in sys.stdlib_module_names
    return not INSTALLED.search(file) and not STANDARD.search(file)


def users_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame of the user's own code, else the innermost Python frame."""
    python = [each for each in frames if each.kind == "python" and each.file and each.line]
    return next((each for each in python if is_users(each.file)), python[0] if python else None)


def source_of(frames: tuple[Frame, ...]) -> SourceLine | None:
    frame = users_frame(frames)
    if frame is None or frame.file is None or frame.line is None:
        return None
    return SourceLine(frame.file, frame.line, frame.function or "?")


def heaviest(sites: Sites, weights: Mapping[int, float]) -> Place | None:
    """The line with most weight; `weights` are by stack, 0 those without one."""
    found = places(sites, weights)
    return found[0] if found and found[0].share >= LEAST_SHARE else None


def places(sites: Sites, weights: Mapping[int, float]) -> list[Place]:
    """Every line, the heaviest first; stacks without a Python frame are one place each."""
    total = sum(weights.values())
    known = {stack: weight for stack, weight in weights.items() if stack and weight > 0}
    chosen = sorted(known, key=lambda stack: (-known[stack], stack))[:LOOKED_AT]
    frames = sites.stacks(chosen)
    lines: dict[SourceLine | int, list[int]] = defaultdict(list)
    for stack in chosen:
        if frames.get(stack):
            lines[source_of(frames[stack]) or stack].append(stack)
    made = [_place(line, stacks, known, frames, total) for line, stacks in lines.items()]
    return sorted(made, key=lambda each: -each.weight)


def _place(
    line: SourceLine | int,
    stacks: list[int],
    weights: Mapping[int, float],
    frames: Mapping[int, tuple[Frame, ...]],
    total: float,
) -> Place:
    weight = sum(weights[stack] for stack in stacks)
    source = line if isinstance(line, SourceLine) else None
    return Place(source, frames[stacks[0]], weight, weight / total, tuple(stacks))
