"""Fine-tunes a speech model: copies on one stream, computes on another."""

from __future__ import annotations

import numpy as np
from runbook import Run
from torchlet import Device

from ingero.scenarios.cuda import CudaCallError
from speech.buffers import Activations, Scratch


class Trainer:
    def __init__(self, run: Run) -> None:
        self._run, self._device = run, Device()
        self._copies, self._compute = self._device.stream(), self._device.stream()
        self._copied = self._device.event()
        self._waves = self._device.empty(256 << 20)
        self._pinned = self._device.pinned(64 << 20)
        self._pageable = np.ones(64 << 20, np.uint8)
        self.scratch = Scratch(self._device)
        self.activations = Activations(self._device)

    def upload(self) -> None:
        host = self._pinned if self._run.get("pin", True) else self._pageable
        self._device.upload(self._waves, host, self._run["wave_mb"] << 20, self._copies)
        self._device.record(self._copied, self._copies)
        self._device.runtime.cudaStreamWaitEvent(self._compute, self._copied, 0)

    def forward(self, parts: int = 1) -> None:
        for _ in range(parts):
            for layer in range(self._run["layers"]):
                self._device.launch(self._run["layer_us"] / parts, self._compute, layer)

    def log_activations(self) -> None:
        """For the histogram in the board."""
        nbytes = self._run["log_mb"] << 20
        self._device.download(self._pageable, self._waves, nbytes, self._compute)
        float(self._pageable[:nbytes:4096].mean())

    def step(self) -> None:
        self.upload()
        if self._run.get("scratch_blocks"):
            self.scratch.use(self._run["scratch_blocks"])
        if self._run.get("beam_gb"):
            self.beam_search(self._run["beam_gb"])
        self.forward()
        if self._run.get("log_mb"):
            self.log_activations()
        if self._run.get("keep_mb"):
            self.activations.keep(self._run["keep_mb"] << 20)
        self._device.synchronize(self._compute)

    def beam_search(self, gigabytes: float) -> None:
        """Wide if it fits, in halves if not."""
        try:
            wide = self._device.empty(int(gigabytes * (1 << 30)))
        except CudaCallError:
            self.scratch.drop()
            self.activations.rebuild()
            for _ in range(4):
                narrow = self._device.empty(256 << 20)
                self.forward(4)
                self._device.synchronize(self._compute)
                narrow.free()
            return
        self.forward()
        wide.free()


def main() -> None:
    run = Run()
    trainer = Trainer(run)
    while True:
        trainer.step()
        run.step()


if __name__ == "__main__":
    main()
