"""Where a thread was: a stack with names, each frame as a user knows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    kind: str  # python, native, note (says in words what could not be read)
    function: str
    file: str | None
    line: int | None  # the one being executed
    module: str | None


@dataclass(frozen=True, slots=True)
class ResolvedStack:
    hash: int  # 63 bits, positive
    frames: tuple[Frame, ...]  # innermost first
