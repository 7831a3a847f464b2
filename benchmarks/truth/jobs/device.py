"""The part of a training step that goes to the GPU."""

from __future__ import annotations

import ctypes
import os
import random
import time
from pathlib import Path
from typing import Any

from book import Book
from settings import Settings
from work import compute

from ingero.scenarios import cuda

LARGEST_BYTES = 1 << 28


class Device:
    """One GPU of a job: buffers, streams, kernels."""

    def __init__(self, settings: Settings, book: Book, rank: int = 0) -> None:
        self._book, self._rank = book, rank
        self._cuda = cuda.stub_runtime()
        # A framework launches with the interpreter's lock held: no thread switch between launches.
        self._launch = ctypes.PyDLL(str(self._cuda.path)).cudaLaunchKernel
        self._launch.argtypes = self._cuda.function("cudaLaunchKernel").argtypes
        self._blocking = settings.blocking
        self._comm: Any = None
        self._graph = 0
        self._kept: list[int] = []
        self._steps = 0

    def start(self) -> None:
        """The first calls: context, memory, modules."""
        if self._rank:
            self._cuda.cudaSetDevice(self._rank)
        if self._blocking:
            self._cuda.cudaSetDeviceFlags(cuda.SCHEDULE_BLOCK)
        self._kernels = [cuda.stub_kernel(name) for name in cuda.KERNELS]
        self._batch = self._cuda.malloc(LARGEST_BYTES)
        self._pinned = self._cuda.malloc_host(LARGEST_BYTES)
        self._pageable = ctypes.create_string_buffer(1 << 20)
        self._loss = self._cuda.malloc(4096)
        self._stream = self._cuda.stream()
        self._done = [self._cuda.event(cuda.EVENT_BLOCKING_SYNC * self._blocking) for _ in range(2)]
        for event in self._done:
            self._cuda.cudaEventRecord(event, self._stream)
        self._threads = cuda.Dim3(256, 1, 1)

    def join(self, ranks: int, meeting: Path) -> None:
        """Meet the other ranks; rank 0 makes the id and leaves it in a file."""
        self._nccl = cuda.stub_nccl()
        unique, self._comm = cuda.UniqueId(), ctypes.c_void_p()
        if self._rank == 0:
            self._nccl.ncclGetUniqueId(ctypes.byref(unique))
            (meeting / "new").write_bytes(bytes(unique))
            (meeting / "new").rename(meeting / "id")
        while not (meeting / "id").exists():
            time.sleep(0.005)
        unique = cuda.UniqueId.from_buffer_copy((meeting / "id").read_bytes())
        self._nccl.ncclCommInitRank(ctypes.byref(self._comm), ranks, unique, self._rank)

    def train(self, settings: Settings) -> None:
        """Forward, backward and the optimizer, as the device sees them."""
        self._copy_batch(settings)
        if settings.graph:
            self._through_graph(settings)
        else:
            self._run_layers(settings)
        if self._comm:
            self._reduce(settings.gradient_bytes)
        self._odd_calls(settings)
        self._finish(settings)

    def evaluate(self, settings: Settings) -> None:
        """Forward passes alone; the result of each is looked at."""
        for _ in range(settings.evaluate_steps):
            self._copy_batch(settings)
            self._run_layers(settings)
            self._cuda.cudaStreamSynchronize(self._stream)

    def _copy_batch(self, settings: Settings) -> None:
        total = settings.batch_bytes
        if settings.vary_bytes:
            total = int(total * random.choice((0.05, 0.2, 0.5, 1.0)))
        each = max(total // settings.copies, 1)
        for _ in range(settings.copies):
            if settings.pinned:
                self._cuda.cudaMemcpyAsync(self._batch, self._pinned, each, cuda.HOST_TO_DEVICE, self._stream)
            else:
                host = ctypes.addressof(self._pageable)
                self._cuda.cudaMemcpy(self._batch, host, each, cuda.HOST_TO_DEVICE)

    def _run_layers(self, settings: Settings) -> None:
        grid, kernels = cuda.Dim3(settings.blocks, 1, 1), self._kernels
        launch, threads, stream = self._launch, self._threads, self._stream
        churn_at = settings.kernels // max(settings.buffers, 1) if settings.buffers else 0
        for index in range(settings.kernels):
            if settings.layer_us:
                compute(settings.layer_us / 1e3)
            status = launch(kernels[index % 4], grid, threads, None, 0, stream)
            if status:
                raise cuda.CudaCallError("cudaLaunchKernel", status)
            if settings.sync == "layer":
                self._cuda.cudaStreamSynchronize(stream)
            if churn_at and index % churn_at == 0:
                self._cuda.cudaFree(self._cuda.malloc(settings.buffer_bytes))  # here

    def _through_graph(self, settings: Settings) -> None:
        if settings.graph == "capture" and self._graph:
            self._cuda.cudaGraphExecDestroy(self._graph)
            self._graph = 0
        if not self._graph:
            self._graph = self._captured(settings)
        self._cuda.cudaGraphLaunch(self._graph, self._stream)

    def _captured(self, settings: Settings) -> int:
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self._cuda.cudaStreamBeginCapture(self._stream, 1)
        self._run_layers(settings)
        self._cuda.cudaStreamEndCapture(self._stream, graph)
        self._cuda.cudaGraphInstantiate(executable, graph, 0)
        self._cuda.cudaGraphDestroy(graph)
        return executable.value or 0

    def _reduce(self, bytes_: int) -> None:
        count = bytes_ // 4
        self._nccl.ncclAllReduce(
            self._batch, self._batch, count, cuda.NCCL_FLOAT32, cuda.NCCL_SUM, self._comm, self._stream
        )

    def _odd_calls(self, settings: Settings) -> None:
        if settings.kept_bytes:
            self._kept.append(self._cuda.malloc(settings.kept_bytes))  # here
        if settings.wanted_bytes:
            self._want(settings.wanted_bytes)
        if settings.stale_pointer_every and self._steps % settings.stale_pointer_every == 0:
            stale = self._batch + (1 << 44)
            status = self._cuda.try_call(
                "cudaMemcpyAsync", stale, self._pinned, 4096, cuda.HOST_TO_DEVICE, self._stream
            )
            if status:
                self._book.trouble_met()

    def _want(self, bytes_: int) -> None:
        """Ask for more than may be there, and go on with less, as frameworks do."""
        pointer = ctypes.c_void_p()
        if self._cuda.try_call("cudaMalloc", pointer, bytes_):
            self._book.trouble_met()
            self._cuda.cudaMalloc(pointer, bytes_ // 1024)
        self._cuda.cudaFree(pointer)

    def _finish(self, settings: Settings) -> None:
        self._cuda.cudaEventRecord(self._done[self._steps % 2], self._stream)
        lag = settings.sync == "lagged"
        self._cuda.cudaEventSynchronize(self._done[(self._steps + lag) % 2])
        if settings.item_every and self._steps % settings.item_every == 0:
            host = ctypes.addressof(self._pageable)
            self._cuda.cudaMemcpyAsync(host, self._loss, 4, cuda.DEVICE_TO_HOST, self._stream)
        self._steps += 1


def rank_of() -> int:
    return int(os.environ.get("RANK", "0"))
