"""Every scenario, in the order `ingero demo all` shows them."""

from __future__ import annotations

from ingero.scenarios import (
    cold_start,
    cpu_contention,
    gpu_steal,
    incident,
    memcpy_bottleneck,
    periodic_spike,
)
from ingero.scenarios.scenario import Scenario

ALL: tuple[Scenario, ...] = tuple(
    module.SCENARIO
    for module in (incident, cold_start, memcpy_bottleneck, periodic_spike, cpu_contention, gpu_steal)
)
BY_NAME = {scenario.name: scenario for scenario in ALL}
