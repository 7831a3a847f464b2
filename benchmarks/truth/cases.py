"""The table of all cases, by set."""

from __future__ import annotations

from random import Random

from benchmarks.truth import healthy, held_out
from benchmarks.truth.drawn import Case, Draw
from benchmarks.truth.faults import calls, combined, cpu, data, host, peers

DEV: tuple[Case, ...] = (
    *cpu.CASES, *data.CASES, *host.CASES, *peers.CASES, *calls.CASES, *combined.CASES, *healthy.CASES,
)  # fmt: skip
SETS = {"dev": DEV, "held-out": held_out.CASES, "all": (*DEV, *held_out.CASES)}


def chosen(name: str, only: list[str]) -> list[Case]:
    """Cases of a set whose name is, or begins with, one of `only`."""
    return [case for case in SETS[name] if not only or any(case.name.startswith(word) for word in only)]


def drawn(case: Case, seed: int) -> Draw:
    """The same for the same seed, and independent of the other cases."""
    return case.draw(Random(f"{seed}:{case.name}"))
