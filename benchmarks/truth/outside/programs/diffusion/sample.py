"""Samples pictures: a denoiser called again and again, launched one by one or as a CUDA graph."""

from __future__ import annotations

import ctypes

from runbook import Run
from torchlet import Device


class Denoiser:
    def __init__(self, device: Device, run: Run) -> None:
        self._device, self._run = device, run
        self._stream = device.stream()
        self._graph: int | None = None

    def _network(self, blocks: int, us: float, strict: bool) -> None:
        for block in range(blocks):
            self._device.launch(us, self._stream, block)
            if strict:
                self._device.synchronize(self._stream)  # so that an error is told where it happens

    def _captured(self) -> int:
        runtime, graph, made = self._device.runtime, ctypes.c_void_p(), ctypes.c_void_p()
        runtime.cudaStreamBeginCapture(self._stream, 0)
        self._network(self._run["blocks"], self._run["block_us"], False)
        runtime.cudaStreamEndCapture(self._stream, ctypes.byref(graph))
        runtime.cudaGraphInstantiate(ctypes.byref(made), graph, 0)
        runtime.cudaGraphDestroy(graph)
        return made.value or 0

    def denoise(self, number: int) -> None:
        if not self._run.get("graphs"):
            self._network(self._run["blocks"], self._run["block_us"], self._run.get("strict", False))
            return
        shape_changed = self._run.get("shapes") and number % self._run["shapes"] == 0
        if self._graph is None or shape_changed:
            if self._graph:
                self._device.runtime.cudaGraphExecDestroy(self._graph)
            self._graph = self._captured()
        self._device.runtime.cudaGraphLaunch(self._graph, self._stream)

    def finish(self) -> None:
        self._device.synchronize(self._stream)


class Compiler:
    """Kernels for a shape, made when it is first met."""

    def __init__(self) -> None:
        from ingero.scenarios import cuda

        self._driver = cuda.stub_driver()
        self._loaded: dict[int, ctypes.c_void_p] = {}

    def kernels_for(self, shape: int) -> None:
        if shape in self._loaded:
            return
        module = ctypes.c_void_p()
        self._driver.cuModuleLoadData(ctypes.byref(module), b".version 8.0\0")
        self._loaded[shape] = module


def main() -> None:
    run, device = Run(), Device()
    denoiser, compiler = Denoiser(device, run), Compiler()
    number = 0
    while True:
        compiler.kernels_for(number % 4 if not run.get("ragged") else number // run["ragged"] + 10)
        for iteration in range(run["iterations"]):
            denoiser.denoise(iteration + 1)
        denoiser.finish()
        number += 1
        run.step()


if __name__ == "__main__":
    main()
