"""The driver and its cards, with and without NVML."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ingero.discover.gpu_devices import FoundGpu, driver_version, find_gpus
from tests import nvml

VERSION = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24 22:57:45 UTC 2024
GCC version:  gcc version 12.2.0
"""
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n"
INFORMATION = """\
Model: \t\t NVIDIA H200
IRQ:   \t\t 65
GPU UUID: \t GPU-1c7a9b1e-0000-0000-0000-000000000000
Bus Type: \t PCIe
Bus Location: \t 0000:19:00.0
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    (tmp_path / "version").write_text(OPEN)
    card = tmp_path / "gpus" / "0000:19:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text(INFORMATION)
    return tmp_path


@pytest.fixture
def without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


@pytest.mark.parametrize("text, version", [(VERSION, "535.161.08"), (OPEN, "580.65.06"), ("rubbish", None)])
def test_the_version_is_read_from_both_kinds_of_driver(
    tmp_path: Path, text: str, version: str | None
) -> None:
    (tmp_path / "version").write_text(text)
    assert driver_version(tmp_path) == version


@pytest.mark.usefixtures("without_nvml")
def test_without_nvml_the_kernel_module_lists_the_cards(driver: Path) -> None:
    report = find_gpus(driver)
    assert (report.driver, report.source) == ("580.65.06", "proc")
    assert report.gpus == [
        FoundGpu(0, "NVIDIA H200", "GPU-1c7a9b1e-0000-0000-0000-000000000000", "0000:19:00.0")
    ]
    assert "not installed" in report.problem


@pytest.mark.usefixtures("without_nvml")
def test_without_driver_there_is_nothing_and_it_says_why(tmp_path: Path) -> None:
    report = find_gpus(tmp_path)
    assert (report.driver, report.gpus, report.source) == (None, [], "none")
    assert report.problem


def test_nvml_that_finds_no_driver_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    def no_driver() -> None:
        raise NVMLError("Driver Not Loaded")

    module = ModuleType("pynvml")
    module.__dict__.update(nvmlInit=no_driver, NVMLError=NVMLError)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert find_gpus(tmp_path).problem == "NVML: Driver Not Loaded"


def test_nvml_lists_cards_and_a_card_without_own_memory_is_kept(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NVMLError(Exception):
        pass

    def memory(device: int) -> SimpleNamespace:
        if device:
            raise NVMLError("Not Supported")
        return SimpleNamespace(total=1 << 37)

    module = ModuleType("pynvml")
    module.__dict__.update(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPciInfo=lambda device: SimpleNamespace(busId=b"00000000:19:00.0"),
        nvmlDeviceGetName=lambda device: "card",
        nvmlDeviceGetUUID=lambda device: f"GPU-{device}",
        nvmlDeviceGetMemoryInfo=memory,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    report = find_gpus(driver)
    assert report.source == "nvml"
    assert [gpu.memory_bytes for gpu in report.gpus] == [1 << 37, None]
    assert report.gpus[0].bus_id == "00000000:19:00.0"


LOOK = (
    "from ingero.discover import gpu_devices as gpus; gpus.NVML_S = 2.0; found = gpus.find_gpus();"
    " print(found.source, [gpu.uuid for gpu in found.gpus], found.problem)"
)


def look(folder: Path, cards: nvml.Cards) -> str:
    """Another process, which finds the library as any program does."""
    environment = {**os.environ, **cards.environment, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


def test_cards_are_found_through_the_real_binding_and_a_driver_that_hangs_is_not_waited_for(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    nvml.build(tmp_path)
    cards = nvml.Cards(tmp_path / "cards").set(cards=2)
    uuids = ["GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001"]
    assert look(tmp_path, cards) == f"nvml {uuids}"
    assert look(tmp_path, cards.set(hang=1)) == "none [] NVML: no answer within 2 s"
