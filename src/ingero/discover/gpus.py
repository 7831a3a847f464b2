"""The NVIDIA driver and its GPUs: through NVML where nvidia-ml-py is installed, else from /proc.

NVML absent, a driver that does not answer and a host without a card are three different
things and are said apart. Clocks, power and memory in use are not read here.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingero.discover.host import read_text
from ingero.native.nvml import within

DRIVER = Path("/proc/driver/nvidia")
NVML_S = 10.0  # a card that sleeps takes some seconds to wake; longer, and the driver hangs
_VERSION = re.compile(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card; None where the source does not tell."""

    index: int
    name: str
    uuid: str | None = None
    bus_id: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReport:
    """What is known of the cards, where from, and why it is not more."""

    driver: str | None
    gpus: list[Gpu] = field(default_factory=list)
    source: str = "none"  # nvml, proc, none
    problem: str = ""


def driver_version(folder: Path = DRIVER) -> str | None:
    """The version of the loaded kernel module; None when it is not loaded."""
    match = _VERSION.search((read_text(folder / "version") or "") + "\n")
    return match[1] if match else None


def find_gpus(folder: Path = DRIVER) -> GpuReport:
    """Cards by NVML, else what the kernel module shows."""
    driver = driver_version(folder)
    try:
        return GpuReport(driver, within(NVML_S, _from_nvml), "nvml")
    except ImportError:
        problem = "nvidia-ml-py is not installed"
    except Exception as error:
        problem = f"NVML: {error}"
    listed = _from_proc(folder)
    return GpuReport(driver, listed, "proc" if listed else "none", problem)


def _from_nvml() -> list[Gpu]:
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        return [_nvml_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int) -> Gpu:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    bus_id = _text(nvml.nvmlDeviceGetPciInfo(device).busId)
    name, uuid = _text(nvml.nvmlDeviceGetName(device)), _text(nvml.nvmlDeviceGetUUID(device))
    try:
        memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(device).total)
    except nvml.NVMLError:  # unified memory (Grace): there is no memory of its own
        memory_bytes = None
    return Gpu(index, name, uuid, bus_id, memory_bytes)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _from_proc(folder: Path) -> list[Gpu]:
    try:
        files = sorted(folder.glob("gpus/*/information"))
    except OSError:
        return []
    texts = [read_text(path) or "" for path in files]
    return [_proc_gpu(index, text) for index, text in enumerate(texts)]


def _proc_gpu(index: int, text: str) -> Gpu:
    fields = {name.strip(): value.strip() for name, _, value in (s.partition(":") for s in text.splitlines())}
    name = fields.get("Model") or "unknown"
    return Gpu(index, name, fields.get("GPU UUID") or None, fields.get("Bus Location") or None)
