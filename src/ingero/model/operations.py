"""The name of an operation and where it belongs.

The number is what travels in records; the table that assigns numbers is
attach/probes.py. Source numbers are the ones users write in SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Source(IntEnum):
    """The `source` column of the `events` view."""

    RUNTIME = 1
    HOST = 3
    DRIVER = 4
    BLOCK_IO = 5
    TCP = 6
    SOCKET = 7
    GRAPH = 8
    NCCL = 9


LAYER_SOURCE = {
    "runtime": Source.RUNTIME,
    "driver": Source.DRIVER,
    "graph": Source.GRAPH,
    "nccl": Source.NCCL,
    "python": Source.HOST,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One traced function."""

    number: int
    name: str
    layer: str  # runtime, driver, graph, nccl, python
    # launch, copy, set, alloc, free, sync, module, context, graph, collective, comm, group, gc, other
    kind: str
    direction: str | None = None  # copies whose name says it: HtoD, DtoH, DtoD, HtoH
    kind_arg: int | None = None  # argument that holds the cudaMemcpyKind
    bytes_known: bool = False
    peer_arg: int | None = None
    reduce_arg: int | None = None
    dtype_arg: int | None = None
    kernel_arg: int | None = None  # launches: a host function at the runtime, a handle at the driver
    arity: int = 2  # arguments it takes, as far as two are shown

    @property
    def source(self) -> Source:
        return LAYER_SOURCE[self.layer]
