"""From stacks to the line to change.

The user's own line is the innermost Python frame whose file is neither installed
(`site-packages`, `dist-packages`), nor the standard library's (`lib/python3.x`, its
zip, `<frozen importlib...>` and the like). Everything else is the user's: `<string>`,
notebook cells, a frozen program. Where a stack has no such frame, the innermost
Python frame stands for it: better the library's line than none.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ingero.model.finding import SourceLine, StackFrame
from ingero.model.sites import Sites
from ingero.model.stack import Frame

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
