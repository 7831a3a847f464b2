"""A job that never ran: iterations of a training loop, and the GPU they keep busy.

Per iteration: the batch from a worker, some Python, the copy to the GPU, kernels, a
graph, a reduction, and the wait for it all. How long each takes is the phase's; what
follows from sharing a core or a card is not written down anywhere, it happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import Bucket
from ingero.model.operations import Operation
from ingero.scenarios.code import ProgramPlace
from ingero.scenarios.scenario import MS, SECOND, US, Phase
from ingero.scenarios.thread import Thread

LAUNCH = Operation(1, "cuLaunchKernel", "driver", "launch")
COPY = Operation(2, "cuMemcpyHtoDAsync_v2", "driver", "copy", direction="HtoD", bytes_known=True)
SYNC = Operation(3, "cudaStreamSynchronize", "runtime", "sync")
ALLOC = Operation(4, "cudaMalloc", "runtime", "alloc", bytes_known=True)
GRAPH = Operation(5, "cudaGraphLaunch", "graph", "graph")
REDUCE = Operation(6, "ncclAllReduce", "nccl", "collective", bytes_known=True, dtype_arg=3, reduce_arg=4)
CONTEXT = Operation(7, "cuDevicePrimaryCtxRetain", "driver", "context")
MODULE = Operation(8, "cuLibraryLoadData", "driver", "module")
OPERATIONS = (LAUNCH, COPY, SYNC, ALLOC, GRAPH, REDUCE, CONTEXT, MODULE)
FROM_RUNTIME = (LAUNCH, COPY, CONTEXT, MODULE)  # the runtime calls the driver for it

WEIGHTS_BYTES = 32 << 20
ALLOCATIONS = 12


class MadeUpJob:
    """The thread of a process that feeds the GPU."""

    def __init__(
        self,
        thread: Thread,
        random: np.random.Generator,
        workers: Sequence[int] = (),
        neighbours: Sequence[int] = (),
        *,
        collective: bool = True,
    ) -> None:
        self.thread = thread
        self._random = random
        self._workers = workers
        self._neighbours = neighbours
        self._collective = collective
        self._pause_due_ns = 0
        self._done_ns = 0  # when the GPU will have done everything

    def play(self, phases: Sequence[tuple[int, Phase]]) -> None:
        """Each phase up to its end."""
        for number, (end_ns, phase) in enumerate(phases):
            self.thread.rivals = tuple(self._neighbours[: phase.per_core])
            self._pause_due_ns = self.thread.now + phase.pause_every_ns // 2
            self._start_up(phase, first=not number)
            while self.thread.now < end_ns:
                self._step(phase)

    def _start_up(self, phase: Phase, *, first: bool) -> None:
        self.thread.place = ProgramPlace.START
        if phase.context_ns:
            self.thread.call(CONTEXT, self._lasting(phase.context_ns))
        self.thread.place = ProgramPlace.LOAD_CODE
        for _ in range(phase.modules):
            self.thread.call(MODULE, self._lasting(phase.module_ns, 0.3))
            self.thread.run(Bucket.HOST_CPU, self._lasting(4 * MS, 0.3))
        self.thread.place = ProgramPlace.ALLOCATE
        for _ in range(ALLOCATIONS if first else 0):
            self.thread.call(ALLOC, self._lasting(120 * US, 0.8), 2 << 20)

    def _step(self, phase: Phase) -> None:
        thread = self.thread
        thread.place = ProgramPlace.NEXT_BATCH
        if self._workers:
            worker = int(self._random.choice(self._workers))
            thread.block(Bucket.PEER_WAIT, self._lasting(phase.batch_wait_ns, 0.3), worker)
        thread.place = ProgramPlace.PREPARE
        thread.run(Bucket.HOST_CPU, self._lasting(phase.host_ns, 0.1))
        if phase.pause_every_ns and thread.now >= self._pause_due_ns:
            self._pause_due_ns += phase.pause_every_ns
            thread.place = ProgramPlace.METRICS
            thread.run(Bucket.HOST_CPU, self._lasting(phase.pause_ns, 0.05))
        thread.idle = False
        self._copy(phase)
        self._give(phase)
        thread.place = ProgramPlace.WAIT
        thread.wait_for_gpu(SYNC, self._done_ns)
        thread.place = ProgramPlace.LOG
        thread.run(Bucket.HOST_CPU, self._lasting(200 * US, 0.3))

    def _copy(self, phase: Phase) -> None:
        self.thread.place = ProgramPlace.COPY
        by_cpu = phase.copy_bytes / phase.pageable_gbps if phase.pageable_gbps else 9 * US
        self.thread.call(COPY, self._lasting(by_cpu, 0.06 if phase.pageable_gbps else 0.3), phase.copy_bytes)

    def _give(self, phase: Phase) -> None:
        first = self.thread.now
        needs = self._lasting(phase.gpu_ns, 0.04)
        self.thread.place = ProgramPlace.FORWARD
        inside = self._many(phase.launches, 5.2 * US, 0.4)
        self.thread.launch(LAUNCH, inside, self._many(phase.launches, 17 * US, 0.5))
        self.thread.place = ProgramPlace.REPLAY
        self.thread.call(GRAPH, self._lasting(34 * US, 0.3))
        self.thread.place = ProgramPlace.REDUCE
        if self._collective:
            self.thread.call(REDUCE, self._lasting(22 * US, 0.3), WEIGHTS_BYTES)
        # The last kernel cannot run before it was launched.
        self._done_ns = max(first + needs, self.thread.now + needs // (phase.launches + 1))

    def _lasting(self, median_ns: float, spread: float = 0.2) -> int:
        return int(self._many(1, median_ns, spread)[0])

    def _many(self, count: int, median_ns: float, spread: float) -> NDArray[np.int64]:
        drawn = self._random.lognormal(np.log(median_ns), spread, count)
        return np.maximum(200, drawn).astype(np.int64)


def timed(phases: Sequence[Phase], start_ns: int) -> Iterator[tuple[int, int, Phase]]:
    """(start, end, phase)."""
    for phase in phases:
        yield start_ns, start_ns + phase.seconds * SECOND, phase
        start_ns += phase.seconds * SECOND
