"""How long walks of stacks took, as the kernel side added them up; in either way of walking."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ingero.capture.counters import MapReader
from ingero.model import layout
from tests.ebpf.tracing import Tracer, tracing


@contextmanager
def walking(kind: str) -> Iterator[Tracer]:
    """`after`: by the thread itself; `early`: as on kernels before 6.18."""
    before = os.environ.get("INGERO_WAIT_LINES")
    os.environ["INGERO_WAIT_LINES"] = kind
    try:
        with tracing() as tracer:
            yield tracer
    finally:
        del os.environ["INGERO_WAIT_LINES"]
        if before is not None:
            os.environ["INGERO_WAIT_LINES"] = before


def walk_costs(tracer: Tracer, name: str) -> np.void:
    """Of all cores together; `name`: the map they are in."""
    kernel = tracer.agent._kernel
    assert kernel is not None
    key = np.dtype([("at", "<u4")])
    _, values = MapReader(kernel.maps[name], key, layout.WALK_COST, kernel.cpus).read()
    sums: np.void = np.zeros(1, layout.WALK_COST)[0]
    sums["count"], sums["ns"] = values["count"].sum(), values["ns"].sum()
    sums["max_ns"] = values["max_ns"].max()
    return sums
