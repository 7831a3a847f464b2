"""The little of a framework that these jobs need, over the CUDA runtime."""

from __future__ import annotations

import ctypes
from typing import Any

from ingero.scenarios import cuda

SLEEPS = cuda.SCHEDULE_BLOCK
SPINS = cuda.SCHEDULE_SPIN


class Tensor:
    """Memory on the device."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.nbytes, self._device = nbytes, device
        self.address = device.runtime.malloc(nbytes)

    def free(self) -> None:
        self._device.runtime.cudaFree(self.address)


class Device:
    """One device, as one process uses it."""

    def __init__(self, number: int = 0, waits: int = SLEEPS) -> None:
        self.runtime = cuda.stub_runtime()
        self.runtime.cudaSetDevice(number)
        self.runtime.cudaSetDeviceFlags(waits)
        self._kernels = {name: cuda.stub_kernel(name) for name in cuda.KERNELS}
        self._names = list(self._kernels.values())

    def launch(self, us: float, stream: int = 0, kind: int = 1) -> None:
        self.runtime.launch(self._names[kind % 4], blocks=max(1, int(us)), stream=stream)

    def stream(self) -> int:
        return self.runtime.stream(cuda.STREAM_NON_BLOCKING)

    def event(self) -> int:
        return self.runtime.event(cuda.EVENT_BLOCKING_SYNC)

    def record(self, event: int, stream: int = 0) -> None:
        self.runtime.cudaEventRecord(event, stream)

    def done(self, event: int) -> bool:
        return self.runtime.try_call("cudaEventQuery", event) == 0

    def synchronize(self, stream: int | None = None) -> None:
        if stream is None:
            self.runtime.cudaDeviceSynchronize()
        else:
            self.runtime.cudaStreamSynchronize(stream)

    def wait(self, event: int) -> None:
        self.runtime.cudaEventSynchronize(event)

    def empty(self, nbytes: int) -> Tensor:
        return Tensor(self, nbytes)

    def pinned(self, nbytes: int) -> int:
        return self.runtime.malloc_host(nbytes)

    def upload(self, to: Tensor, host: Any, nbytes: int, stream: int = 0) -> None:
        """`host` is an address or a numpy array."""
        self.runtime.cudaMemcpyAsync(to.address, _address(host), nbytes, cuda.HOST_TO_DEVICE, stream)

    def download(self, host: Any, source: Tensor, nbytes: int, stream: int = 0) -> None:
        self.runtime.cudaMemcpyAsync(_address(host), source.address, nbytes, cuda.DEVICE_TO_HOST, stream)

    def item(self, source: Tensor) -> float:
        """One number, as `loss.item()` gets it: waits for all before it."""
        value = ctypes.c_float()
        self.runtime.cudaMemcpy(
            ctypes.addressof(value), source.address, ctypes.sizeof(value), cuda.DEVICE_TO_HOST
        )
        return value.value


def _address(host: Any) -> int:
    return host if isinstance(host, int) else host.ctypes.data
