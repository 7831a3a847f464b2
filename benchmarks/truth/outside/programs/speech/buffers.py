"""Device memory that steps use in passing."""

from __future__ import annotations

from torchlet import Device, Tensor

from ingero.scenarios.cuda import CudaCallError


class Scratch:
    def __init__(self, device: Device) -> None:
        self._device, self._cached = device, []

    def use(self, blocks: int) -> None:
        taken = [self._device.empty((1 + number % 5) << 20) for number in range(blocks)]
        for each in taken:
            each.free()

    def drop(self) -> None:
        self._cached.clear()


class Activations:
    """What steps leave behind, to look at it later."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kept: list[Tensor] = []
        self._pool = [device.empty(64 << 20) for _ in range(24)]

    def keep(self, nbytes: int) -> None:
        try:
            self._kept.append(self._device.empty(nbytes))
        except CudaCallError:
            self.rebuild()

    def rebuild(self) -> None:
        """All that is cached is given back and asked for again."""
        for each in self._pool:
            each.free()
        self._pool = [self._device.empty(64 << 20) for _ in range(24)]
