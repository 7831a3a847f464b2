"""The NVIDIA driver and its GPUs: through NVML where nvidia-ml-py is installed, else from /proc; and which
of them a process means by its device numbers.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingero.discover.host import read_text
from ingero.native.nvml import within

# The NVIDIA driver and its GPUs: through NVML where nvidia-ml-py is installed, else from /proc.
#
# NVML absent, a driver that does not answer and a host without a card are three different
# things and are said apart. Clocks, power and memory in use are not read here.

DRIVER = Path("/proc/driver/nvidia")
NVML_S = 10.0  # a card that sleeps takes some seconds to wake; longer, and the driver hangs
_VERSION = re.compile(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s")


@dataclass(frozen=True, slots=True)
class FoundGpu:
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
    gpus: list[FoundGpu] = field(default_factory=list)
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
    except Exception as error:  # NVML's own, a driver that hangs, a library of another age: /proc is left
        problem = f"NVML: {error}"
    listed = _from_proc(folder)
    return GpuReport(driver, listed, "proc" if listed else "none", problem)


def _from_nvml() -> list[FoundGpu]:
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        return [_nvml_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int) -> FoundGpu:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    bus_id = _text(nvml.nvmlDeviceGetPciInfo(device).busId)
    name, uuid = _text(nvml.nvmlDeviceGetName(device)), _text(nvml.nvmlDeviceGetUUID(device))
    try:
        memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(device).total)
    except nvml.NVMLError:  # unified memory (Grace): there is no memory of its own
        memory_bytes = None
    return FoundGpu(index, name, uuid, bus_id, memory_bytes)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _from_proc(folder: Path) -> list[FoundGpu]:
    try:
        files = sorted(folder.glob("gpus/*/information"))
    except OSError:
        return []
    texts = [read_text(path) or "" for path in files]
    return [_proc_gpu(index, text) for index, text in enumerate(texts)]


def _proc_gpu(index: int, text: str) -> FoundGpu:
    fields = {name.strip(): value.strip() for name, _, value in (s.partition(":") for s in text.splitlines())}
    name = fields.get("Model") or "unknown"
    return FoundGpu(index, name, fields.get("GPU UUID") or None, fields.get("Bus Location") or None)


# Which GPU a process means by its device numbers.
#
# CUDA counts the devices a process may see from 0; users and NVML count cards by their
# place on the bus. Between them stand CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER (unless it is
# PCI_BUS_ID, CUDA puts the fastest card first, and only among cards of one kind the order
# is still that of the bus) and, in a container, which cards it was given. Where one of them
# names something unknown here, the answer is unknown, never a guess.


Devices = tuple[int, ...]  # card by device number
NOT_A_LIST = frozenset({"", "all", "void", "none"})


def visible_devices(
    environment: Mapping[str, str], gpus: Sequence[FoundGpu], contained: bool = False
) -> Devices | None:
    """Cards in the order the process counts them; None when that cannot be known."""
    given = _given(environment, gpus) if contained else list(gpus)
    if given is None:
        return None
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in given}) <= 1
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(gpu.index for gpu in given) or None if by_bus or len(given) == 1 else None
    return _chosen(named, given, by_bus)


def _chosen(named: str, given: Sequence[FoundGpu], by_bus: bool) -> Devices | None:
    chosen: list[int] = []
    for word in (part.strip() for part in named.split(",")):
        if _is_number(word) and not by_bus:
            return None
        card = _card(word, given)
        if card is None:
            break  # CUDA itself stops at the first entry it does not know
        chosen.append(card)
    return tuple(chosen) or None


def _given(environment: Mapping[str, str], gpus: Sequence[FoundGpu]) -> list[FoundGpu] | None:
    """The cards a container was given, in the order of the bus; None when that cannot be known."""
    named = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if named in NOT_A_LIST:
        return list(gpus)
    cards = {_card(word.strip(), gpus) for word in named.split(",")}
    return None if None in cards else [gpu for gpu in gpus if gpu.index in cards]


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal()


def _card(word: str, gpus: Sequence[FoundGpu]) -> int | None:
    if _is_number(word):
        number = int(word)
        if not gpus:
            return number
        # Numbers count the cards the process was given, which need not be the first ones.
        return gpus[number].index if number < len(gpus) else None
    matches = [gpu.index for gpu in gpus if gpu.uuid and word and gpu.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None
