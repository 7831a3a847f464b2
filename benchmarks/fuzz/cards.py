"""Answers of NVML with anything in their structs: what a driver that lies, or is broken, could give."""

from __future__ import annotations

import tempfile
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.fuzz.target import Try
from ingero.capture.gpu_cards import CardReader
from ingero.model.gpus import GpuNews
from ingero.native import nvml
from ingero.native.nvml import CardLostError, Nvml, NvmlMissingError
from ingero.serve.answers.live import LiveTotals
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, fixed_clock, window

# What a function gives: the width of a number, a text, a struct by field, or a list of one of these.
SHAPES: dict[str, Any] = {
    "nvmlDeviceGetName": "text", "nvmlDeviceGetUUID": "text", "nvmlDeviceGetPciInfo": {"busId": "text"},
    "nvmlDeviceGetMemoryInfo": {"total": 8, "used": 8, "free": 8},
    "nvmlDeviceGetUtilizationRates": {"gpu": 4, "memory": 4},
    "nvmlDeviceGetRemappedRows": (4, 4, 4, 4), "nvmlDeviceGetMigMode": (4, 4),
    "nvmlDeviceGetSamples": (4, [{"timeStamp": 8, "sampleValue": {"uiVal": 4}}]),
    "nvmlDeviceGetFieldValues": [{"nvmlReturn": 4, "value": {"uiVal": 4}}],
    "nvmlDeviceGetViolationStatus": {"violationTime": 8, "referenceTime": 8},
    "nvmlDeviceGetProcessUtilization": [{"pid": 4, "timeStamp": 8, "smUtil": 4, "memUtil": 4}],
    "nvmlDeviceGetCurrentClocksEventReasons": 8, "nvmlDeviceGetTotalEccErrors": 8,
    **{
        f"nvmlDeviceGet{kind}RunningProcesses_v{n}": [{"pid": 4, "usedGpuMemory": 8}]
        for kind in ("Graphics", "Compute") for n in (2, 3)
    },
}  # fmt: skip


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


class Liar:
    """Stands for the library; every answer is made of the next bytes of an input."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_GPU_IS_LOST, NVML_ERROR_UNINITIALIZED = 3, 15, 1

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken.ljust(size, b"\0")

    def _made(self, shape: Any) -> Any:
        if isinstance(shape, int):
            return int.from_bytes(self._take(shape), "little")
        if shape == "text":
            return self._take(1 + self._take(1)[0] % 40)
        if isinstance(shape, dict):
            return types.SimpleNamespace(**{name: self._made(each) for name, each in shape.items()})
        if isinstance(shape, list):
            return [self._made(shape[0]) for _ in range(self._take(1)[0] % 9)]
        return [self._made(each) for each in shape]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_") or name == "nvmlMemory_v2":
            return 1
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def answer(*_: Any) -> Any:
            if name.startswith("nvmlDeviceGet") and self._take(1)[0] % 16 == 1:
                raise NVMLError(self._take(1)[0] % 32)
            return self._made(SHAPES.get(name, 4))

        return answer


def answers() -> Sequence[bytes]:
    return [bytes(4000), bytes(range(256)) * 8, b"\xff" * 2000, b"\x00\x00\x40\x00\x05\x00" * 300]


@contextmanager
def read_cards() -> Iterator[Try]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="fuzz-") as folder:
        writer = Writer(Path(folder) / "a.db", "n1", fixed_clock(), OPERATIONS, 2 << 20)
        totals, second = LiveTotals(OPERATIONS, "n1"), 0
        liar = types.SimpleNamespace(import_module=None)
        real = vars(nvml)["importlib"]
        vars(nvml)["importlib"] = liar

        def attempt(data: bytes) -> None:
            nonlocal second
            liar.import_module = lambda _: Liar(data)
            second += 1
            found = CardReader(Nvml(), 0, "580.1")
            news = GpuNews((found.card(),), (found.sample(),), tuple(found.processes(second)))
            made = window(second * SECOND, gpus=news)
            totals.add(made)
            totals.view(second, second)
            if why := writer.write(made):
                raise AssertionError(f"it was not stored: {why}")

        try:
            yield attempt
        finally:
            vars(nvml)["importlib"] = real
            writer.close()


DOCUMENTED = (CardLostError, NvmlMissingError)
