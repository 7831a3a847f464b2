"""What a benchmark hands back: figures, some with a target, and how they were measured.

A Figure is made where the value is measured, target beside it, so that a page or a
table never has to know what good is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, as people read it."""

    what: str
    value: str
    target: str = ""
    met: bool | None = None  # None: there is no target
    sure: bool = True  # False: the interval lies on both sides of the target

    @property
    def verdict(self) -> str:
        if self.met is None:
            return ""
        return ("met" if self.met else "missed") + ("" if self.sure else ", not surely")


@dataclass(frozen=True, slots=True)
class Section:
    """One benchmark's outcome."""

    title: str
    figures: tuple[Figure, ...]
    method: str
    resolves: str  # what the figures can and cannot tell apart
    notes: tuple[str, ...] = ()  # what this run found, in sentences
    problem: str = ""  # why there are no figures


def at_most(what: str, value: float, limit: float, shown: str, unit: str, sure: bool = True) -> Figure:
    """A value that should stay at or below a limit."""
    return Figure(what, shown, f"≤ {limit:g}{unit}", value <= limit, sure)


def unsure(sections: Iterable[Section]) -> list[str]:
    """Targets met by the value but not by all of its interval, in words."""
    return [
        f"met, not surely: {section.title}, {figure.what}: {figure.value}, target {figure.target}"
        for section in sections
        for figure in section.figures
        if figure.met and not figure.sure
    ]


def missed(sections: Iterable[Section]) -> list[str]:
    """Targets missed, in words."""
    return [
        f"target missed: {section.title}, {figure.what}: {figure.value}, target {figure.target}"
        for section in sections
        for figure in section.figures
        if figure.met is False
    ]
