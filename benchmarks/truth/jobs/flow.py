"""A device used in other ways: several streams, buffers in turn, results copied back, polling."""

from __future__ import annotations

import ctypes
import random
import time

from book import Book
from device import Device
from settings import Settings
from work import compute

from ingero.scenarios import cuda

SIZES = (1, 3, 8, 21)  # times the bytes of a buffer, over the largest of them
NOT_READY = cuda.NOT_READY


class Flow(Device):
    def __init__(self, settings: Settings, book: Book) -> None:
        super().__init__(settings, book)
        self._usual = settings
        self._graphs: dict[int, int] = {}
        self._asked = False

    def start(self) -> None:
        """As frameworks do, how many devices there are is asked first."""
        count = ctypes.c_int()
        self._cuda.cudaGetDeviceCount(ctypes.byref(count))
        super().start()
        self._result = self._cuda.malloc_host(1 << 27)
        self._streams = [self._stream, *[self._cuda.stream() for _ in range(self._usual.streams - 1)]]
        self._copying = self._cuda.stream(cuda.STREAM_NON_BLOCKING)
        self._joined, self._there = self._cuda.event(), [self._cuda.event() for _ in range(2)]

    def train(self, settings: Settings) -> None:
        if settings.buffers_mixed:
            self._with_buffers(settings)
        else:
            super().train(settings)

    def _with_buffers(self, settings: Settings) -> None:
        """Buffers of several sizes live as long as the step; every third is from the pool."""
        held: list[tuple[str, int]] = []
        for index in range(settings.buffers):
            bytes_ = settings.buffer_bytes * SIZES[index % len(SIZES)] // SIZES[-1]
            pointer = ctypes.c_void_p()
            if index % 3 == 2:
                self._cuda.cudaMallocAsync(pointer, bytes_, self._stream)  # here
                held.append(("cudaFreeAsync", pointer.value or 0))
            else:
                self._cuda.cudaMalloc(pointer, bytes_)  # here
                held.append(("cudaFree", pointer.value or 0))
        super().train(settings)
        for free, address in held:
            asynchronously = free == "cudaFreeAsync"
            getattr(self._cuda, free)(address, *[self._stream] * asynchronously)  # here

    def _copy_batch(self, settings: Settings) -> None:
        if not settings.double_buffered:
            super()._copy_batch(settings)
            return
        turn = self._steps % 2
        self._cuda.cudaStreamWaitEvent(self._copying, self._done[turn], 0)  # its buffer is free again
        self._cuda.cudaMemcpyAsync(
            self._batch, self._pinned, settings.batch_bytes, cuda.HOST_TO_DEVICE, self._copying
        )
        self._cuda.cudaEventRecord(self._there[turn], self._copying)
        self._cuda.cudaStreamWaitEvent(self._stream, self._there[turn], 0)

    def _run_layers(self, settings: Settings) -> None:
        kernels = settings.kernels
        if settings.accumulate and self._steps % settings.accumulate == settings.accumulate - 1:
            kernels += settings.optimizer_kernels
        grid, streams = cuda.Dim3(settings.blocks, 1, 1), self._streams
        for index in range(kernels):
            compute(settings.layer_us / 1e3)
            stream = streams[index % len(streams)]
            status = self._launch(self._kernels[index % 4], grid, self._threads, None, 0, stream)
            if status:
                raise cuda.CudaCallError("cudaLaunchKernel", status)
            if settings.look_layers and index % settings.look_layers == settings.look_layers - 1:
                self._cuda.cudaMemcpy(ctypes.addressof(self._pageable), self._loss, 4, cuda.DEVICE_TO_HOST)
        for stream in streams[1:]:
            self._cuda.cudaEventRecord(self._joined, stream)
            self._cuda.cudaStreamWaitEvent(self._stream, self._joined, 0)

    def _through_graph(self, settings: Settings) -> None:
        """One graph for each shape; the one kept longest makes room for a new one."""
        shape = random.randrange(settings.shapes)
        if shape not in self._graphs:
            if len(self._graphs) >= settings.graphs_kept:
                self._cuda.cudaGraphExecDestroy(self._graphs.pop(next(iter(self._graphs))))
            self._graphs[shape] = self._captured(settings)
        self._cuda.cudaGraphLaunch(self._graphs[shape], self._stream)

    def _odd_calls(self, settings: Settings) -> None:
        if settings.kept_bytes and self._steps % settings.kept_every == 0:
            self._kept.append(self._cuda.malloc(settings.kept_bytes))  # here
        if settings.wanted_once and not self._asked:
            self._asked = True
            self._want(settings.wanted_bytes)
        self._copy_back(settings)

    def _want(self, bytes_: int) -> None:
        """From the pool; half of it, and so on, until it is there."""
        pointer = ctypes.c_void_p()
        while self._cuda.try_call("cudaMallocAsync", pointer, bytes_, self._stream):
            self._book.trouble_met()
            bytes_ //= 64
        self._cuda.cudaFreeAsync(pointer, self._stream)

    def _copy_back(self, settings: Settings) -> None:
        if settings.result_bytes and settings.result_pinned:
            self._cuda.cudaMemcpyAsync(
                self._result, self._batch, settings.result_bytes, cuda.DEVICE_TO_HOST, self._stream
            )
        elif settings.result_bytes:
            host = ctypes.addressof(self._pageable)
            self._cuda.cudaMemcpy(host, self._batch, settings.result_bytes, cuda.DEVICE_TO_HOST)

    def _finish(self, settings: Settings) -> None:
        if settings.sync not in ("stream", "device", "poll"):
            super()._finish(settings)
            return
        done = self._done[self._steps % 2]
        self._cuda.cudaEventRecord(done, self._stream)
        if settings.sync == "stream":
            self._cuda.cudaStreamSynchronize(self._stream)
        elif settings.sync == "device":
            self._cuda.cudaDeviceSynchronize()
        else:
            while self._cuda.try_call("cudaEventQuery", done) == NOT_READY:
                time.sleep(settings.poll_us / 1e6)
        self._steps += 1
