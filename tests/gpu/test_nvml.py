"""What we read of a real card, held against nvidia-smi at the same time.

`-s` prints what was read and what reading it costs.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time

import pytest

from ingero.capture.gpu_cards import CardReader
from ingero.capture.gpu_poller import GpuPoller
from ingero.model.gpus import GpuCard, GpuProcess, GpuSample, reason_names
from ingero.native.nvml import Nvml

MIB = 1 << 20
WATT = 1000
# Our field, nvidia-smi's name, what one of its units is of ours, how much both may differ meanwhile.
FIXED = (
    ("memory_bytes", "memory.total", MIB, 0.01),
    ("sm_clock_max_mhz", "clocks.max.sm", 1, 0.0),
    ("memory_clock_max_mhz", "clocks.max.memory", 1, 0.0),
    ("power_limit_default_mw", "power.default_limit", WATT, 0.001),
    ("pcie_gen_max", "pcie.link.gen.max", 1, 0.0),
    ("pcie_width_max", "pcie.link.width.max", 1, 0.0),
)
SAMPLED = (
    ("memory_used_bytes", "memory.used", MIB, 0.10),
    ("memory_clock_mhz", "clocks.mem", 1, 0.10),
    ("power_limit_mw", "enforced.power.limit", WATT, 0.001),
    ("power_mw", "power.draw", WATT, 0.50),
    ("temperature_c", "temperature.gpu", 1, 0.10),
    ("memory_temperature_c", "temperature.memory", 1, 0.10),
    ("pcie_width", "pcie.link.width.current", 1, 0.0),
    ("ecc_corrected", "ecc.errors.corrected.volatile.total", 1, 0.0),
    ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total", 1, 0.0),
    ("ecc_corrected_ever", "ecc.errors.corrected.aggregate.total", 1, 0.0),
    ("ecc_uncorrected_ever", "ecc.errors.uncorrected.aggregate.total", 1, 0.0),
)


def smi(*names: str) -> list[list[str]]:
    """One row per card."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi to compare with")
    words = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [[each.strip() for each in line.split(",")] for line in text.splitlines()]


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # [N/A], [Not Supported]


def compare(ours: object, rows: tuple[tuple[str, str, int, float], ...], theirs: list[str]) -> None:
    for (field, name, unit, apart), text in zip(rows, theirs, strict=True):
        mine, its = getattr(ours, field), number(text)
        print(f"  {field:24} {mine!s:>16}   nvidia-smi {name} {text}")
        if its is None:
            assert mine in (None, 0), f"{field}: nvidia-smi has no {name}, we have {mine}"
        else:
            assert mine is not None, f"{field}: unknown to us, nvidia-smi says {text}"
            assert mine == pytest.approx(its * unit, rel=apart, abs=unit), field


@pytest.fixture(scope="module")
def readers() -> list[CardReader]:
    nvml = Nvml()
    return [CardReader(nvml, gpu_id, None) for gpu_id in range(nvml.count())]


def test_every_card_is_described_as_nvidia_smi_does(readers: list[CardReader]) -> None:
    rows = smi("name", "uuid", "pci.bus_id", *(name for _, name, _, _ in FIXED))
    assert len(rows) == len(readers)
    for reader, (name, uuid, bus_id, *rest) in zip(readers, rows, strict=True):
        card: GpuCard = reader.card()
        print(card)
        assert (card.name, card.uuid) == (name, uuid)
        assert card.bus_id is not None
        assert card.bus_id.lower() == bus_id.lower()
        compare(card, FIXED, rest)


def test_a_sample_says_what_nvidia_smi_says(readers: list[CardReader]) -> None:
    rows = smi(*(name for _, name, _, _ in SAMPLED))
    for reader, theirs in zip(readers, rows, strict=True):
        sample: GpuSample = reader.sample()
        print(sample, reason_names(sample.reasons))
        compare(sample, SAMPLED, theirs)


def test_the_reasons_are_those_nvidia_smi_names(readers: list[CardReader]) -> None:
    for reader, (mask,) in zip(readers, smi("clocks_event_reasons.active"), strict=True):
        found = reader.sample().reasons
        assert found is not None
        idle = 0x1  # comes and goes by itself
        assert found & ~idle == int(mask, 16) & ~idle, reason_names(found)


def test_what_looking_costs(readers: list[CardReader]) -> None:
    """Printed, not judged: other work on the machine decides too."""
    for reader in readers:
        began_cpu, took = time.process_time_ns(), []
        for _ in range(20):
            began = time.perf_counter_ns()
            sample = reader.sample()
            reader.processes(sample.at_ns)
            took.append(time.perf_counter_ns() - began)
        cpu_ns = (time.process_time_ns() - began_cpu) / len(took)
        print(f"  a look takes {statistics.median(took) / 1e6:.2f} ms and {cpu_ns / 1e6:.2f} ms of CPU")
        print("  not supported:", reader.card().unsupported)


def test_a_poller_finds_a_process_that_computes() -> None:
    torch = pytest.importorskip("torch")
    matrix = torch.rand(4096, 4096, device="cuda")
    samples: list[GpuSample] = []
    mine: list[GpuProcess] = []
    trouble: list[str] = []
    poller = GpuPoller().start()
    until = time.monotonic() + 8
    try:
        while time.monotonic() < until:
            for _ in range(20):
                matrix.mm(matrix)
            torch.cuda.synchronize()
            news = poller.take()
            samples += news.samples
            mine += [each for each in news.processes if each.pid == os.getpid()]
            trouble += news.trouble
    finally:
        poller.stop()
    print(*samples, *mine, sep="\n  ")
    assert len(samples) >= 5
    assert max(each.gpu_share or 0 for each in samples) > 0.5
    assert max((each.memory_bytes or 0 for each in mine), default=0) >= matrix.nbytes
    assert max((each.sm_share or 0 for each in mine), default=0) > 0.3
    assert not trouble
