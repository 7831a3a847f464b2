"""What a job of this set is, and what is true of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Source:
    """A line of a program, told by the text that stands in it."""

    file: str
    text: str

    def line(self) -> int:
        lines = (PROGRAMS / self.file).read_text().splitlines()
        found = [number for number, line in enumerate(lines, 1) if self.text in line]
        if len(found) != 1:
            raise ValueError(f"{self.text!r} stands in {len(found)} lines of {self.file}")
        return found[0]


@dataclass(frozen=True)
class Job:
    """One draw of one job. Kinds of finding are those of the product's list.

    `right`: honest first answers. `tolerable`: true as far as they go, but not the cause.
    `wrong`: what would send somebody the wrong way; whatever is in none of the three is
    not the cause either. A healthy job has no `cause`, and no finding is right.
    """

    name: str
    program: str
    first: dict[str, Any]
    then: dict[str, Any] = field(default_factory=dict)  # the fault, where it is a setting
    around: tuple[Any, ...] = ()  # what is put around it; of `around.Around`
    stub: dict[str, str] = field(default_factory=dict)
    cause: str = ""
    right: frozenset[str] = frozenset()
    tolerable: frozenset[str] = frozenset()
    wrong: frozenset[str] = frozenset()
    culprits: tuple[str, ...] = ()  # names of processes, each as good
    sources: tuple[Source, ...] = ()  # where the time goes, each as good
    amid: bool | None = None  # the fault begins while it is watched; None: the draw of the set decides
    whole: bool = False  # watched from its first call to its end
    least_loss: float = 0.10  # of its pace; a pace is no measure of a hung job's
    why: str = ""  # of the healthy one: what could mislead
    measured: bool = True  # it has a pace
    seconds: float = 20

    @property
    def faulty(self) -> bool:
        return bool(self.cause)


def kinds(words: str) -> frozenset[str]:
    return frozenset(words.split())
