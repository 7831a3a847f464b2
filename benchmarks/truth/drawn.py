"""A case, and one draw of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.truth.props import Prop

CORES = (0, 1)


@dataclass
class Draw:
    """What one run does: how the job behaves as usual, what changes later, what is around it."""

    usual: dict[str, Any]
    later: dict[str, Any] = field(default_factory=dict)
    props: list[Prop] = field(default_factory=list)
    script: str = "train"
    stub: dict[str, str] = field(default_factory=dict)
    amid: bool = True  # the fault begins while the job is watched; else it was there before
    attach_first: bool = False  # watched from its first call on
    watch_all: bool = False  # every job on the machine, not this one alone
    steps_end: bool = False  # the job does not go on to the end: its step time says nothing then
    faulty_stub: dict[str, str] = field(default_factory=dict)  # the device's own part in the fault


@dataclass(frozen=True)
class Case:
    """`expected` kinds must all be reported and one of them first; none: a healthy run.

    `also` may be reported after them without being called extra. `instead`: answers that are
    as good, each by itself. `blames`: somebody is to be named. Not `timed`: a state, which
    need not cost time, so no step time is compared.
    """

    name: str
    expected: tuple[str, ...]
    draw: Callable[[Random], Draw]
    also: frozenset[str] = frozenset()
    blames: bool = False
    timed: bool = True
    instead: frozenset[str] = frozenset()
    lined: bool = False  # a line of the job is to blame: it ends in `# here`

    @property
    def healthy(self) -> bool:
        return not self.expected


def call_cost(random: Random) -> dict[str, str]:
    """CPU time of a launch, as real ones take."""
    return {"INGERO_STUB_CALL_NS": str(random.randint(2000, 5000))}


def one_core(random: Random) -> int:
    return random.choice(CORES)


def gpu_work(random: Random, least_ms: float = 5, most_ms: float = 14) -> dict[str, Any]:
    """Kernels that keep the device busy for this long in each step."""
    kernels = random.randint(20, 90)
    gpu_ms = random.uniform(least_ms, most_ms)
    return {
        "kernels": kernels,
        "blocks": round(gpu_ms * 1000 / kernels),
        "batch_bytes": random.choice((1, 2, 4, 8)) << 20,
        "sync": random.choice(("end", "lagged")),
        "blocking": random.random() < 0.5,
        "item_every": random.choice((0, 1, 10, 50)),
        "batch_ms": random.uniform(0.1, 0.4),
    }


def any_loader(random: Random) -> dict[str, Any]:
    """Where batches come from in a job that has cores enough."""
    return random.choice(
        (
            {"loader": "inline"},
            {"loader": "thread", "batch_ms": random.uniform(0.3, 1)},
            {"loader": "workers", "workers": 1, "batch_ms": random.uniform(0.5, 2)},
            {"loader": "workers", "workers": 2, "batch_ms": random.uniform(1, 3)},
        )
    )


def amid(random: Random) -> bool:
    return random.random() < 0.5
