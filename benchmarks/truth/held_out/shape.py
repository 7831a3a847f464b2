"""Jobs of other shapes than those of the faults that detectors were tuned on."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

from benchmarks.truth.drawn import Draw, amid, call_cost
from benchmarks.truth.props import Prop
from benchmarks.truth.stage import JOBS


def shape(random: Random, least_ms: float, most_ms: float, **more: Any) -> dict[str, Any]:
    """Kernels that keep the device busy for this long in each step, waited for in some way."""
    kernels = random.randint(12, 120)
    usual: dict[str, Any] = {
        "kernels": kernels,
        "blocks": round(random.uniform(least_ms, most_ms) * 1000 / kernels),
        "batch_bytes": random.choice((128 << 10, 768 << 10, 3 << 20, 6 << 20)),
        "sync": random.choice(("stream", "device", "poll")),
        "poll_us": random.uniform(50, 200),
        "streams": random.choice((1, 1, 2, 3)),
        "blocking": True,
        "item_every": 0,
        "batch_ms": random.uniform(0.05, 0.3),
    }
    return usual | more


def gpu_ms(usual: dict[str, Any]) -> float:
    return float(usual["kernels"] * usual["blocks"] / 1000)


def fit(random: Random, usual: dict[str, Any], later: dict[str, Any] | None = None, *props: Prop) -> Draw:
    return Draw(usual, later or {}, list(props), "fit", call_cost(random), amid=amid(random))


def services(random: Random, count: int, busy_ms: tuple[float, float], rest_ms: tuple[float, float]) -> Any:
    """Commands of programs that work and rest in turn."""
    script = str(JOBS / "burst.py")
    return tuple(
        (sys.executable, script, f"{random.uniform(*busy_ms):.1f}", f"{random.uniform(*rest_ms):.1f}")
        for _ in range(count)
    )
