"""One card asked through NVML: which questions, and what their answers become.

The questions are the table below; what a card does not answer is None. Utilisation comes
from the driver's own buffer of samples where it has one, so that a second is the mean of
all of it and not of its last moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ingero.model.gpus import GpuCard, GpuProcess, GpuSample
from ingero.native.nvml import Nvml

PERCENT = 100
KILO = 1024  # nvmlDeviceGetPcieThroughput counts in KB of this many bytes
MAX_PROCESSES = 256  # per card; more come from nobody's machine
NOT_KNOWN = 0xFFFFFFFF  # what NVML gives for numbers it has not
IMPOSSIBLE = 1 << 62
# Field of GpuSample: function of the library, its arguments.
SAMPLED: dict[str, tuple[str, ...]] = {
    "sm_clock_mhz": ("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    "memory_clock_mhz": ("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    "power_mw": ("nvmlDeviceGetPowerUsage",),
    "power_limit_mw": ("nvmlDeviceGetEnforcedPowerLimit",),
    "pcie_gen": ("nvmlDeviceGetCurrPcieLinkGeneration",),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth",),
    "ecc_corrected": (
        "nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC",
    ),
    "ecc_uncorrected": (
        "nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC",
    ),
    "ecc_corrected_ever": (
        "nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_AGGREGATE_ECC",
    ),
    "ecc_uncorrected_ever": (
        "nvmlDeviceGetTotalEccErrors", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_AGGREGATE_ECC",
    ),
}  # fmt: skip
# Field of GpuCard.
FIXED: dict[str, tuple[str, ...]] = {
    "sm_clock_max_mhz": ("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM"),
    "memory_clock_max_mhz": ("nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_MEM"),
    "sm_clock_set_mhz": ("nvmlDeviceGetApplicationsClock", "NVML_CLOCK_SM"),
    "sm_clock_default_mhz": ("nvmlDeviceGetDefaultApplicationsClock", "NVML_CLOCK_SM"),
    "power_limit_default_mw": ("nvmlDeviceGetPowerManagementDefaultLimit",),
    "slowdown_c": ("nvmlDeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
    "pcie_gen_max": ("nvmlDeviceGetMaxPcieLinkGeneration",),
    "pcie_width_max": ("nvmlDeviceGetMaxPcieLinkWidth",),
}
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")


class CardReader:
    """One card, and what its buffers told last."""

    def __init__(self, nvml: Nvml, gpu_id: int, driver: str | None) -> None:
        self._nvml, self._id, self._driver = nvml, gpu_id, driver
        self._device = nvml.device(gpu_id)
        self._seen_us = self._processes_seen_us = int(time.time() * 1e6) - 1_000_000
        self._capped_ns: dict[str, int | None] = {}

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._nvml.ask(self._id, self._device, function, *arguments)

    def _numbers(self, questions: dict[str, tuple[str, ...]]) -> dict[str, Any]:
        return {name: self._number(question) for name, question in questions.items()}

    def _number(self, question: tuple[str, ...]) -> int | None:
        answer = self._ask(*question)
        return None if answer is None or answer == NOT_KNOWN else _sane(answer)

    def _memory(self) -> Any:
        """In use without what the driver keeps for itself, as nvidia-smi shows it."""
        found = self._ask("nvmlDeviceGetMemoryInfo", "nvmlMemory_v2")
        return found if found is not None else self._ask("nvmlDeviceGetMemoryInfo")

    # --- what it is ---------------------------------------------------------------

    def card(self) -> GpuCard:
        memory, pci = self._memory(), self._ask("nvmlDeviceGetPciInfo")
        mig, mode = self._ask("nvmlDeviceGetMigMode"), self._ask("nvmlDeviceGetComputeMode")
        numbers = self._numbers(FIXED)
        return GpuCard(
            self._id,
            _text(self._ask("nvmlDeviceGetName")) or "unknown",
            uuid=_text(self._ask("nvmlDeviceGetUUID")),
            bus_id=_text(pci.busId) if pci is not None else None,
            driver=self._driver,
            memory_bytes=_sane(memory.total) if memory is not None else None,
            compute_mode=COMPUTE_MODES[mode] if mode is not None and mode < len(COMPUTE_MODES) else None,
            mig=None if mig is None else bool(mig[0]),
            unsupported=tuple(sorted(self._nvml.unsupported(self._id))),
            **numbers,
        )

    # --- how it does --------------------------------------------------------------

    def sample(self) -> GpuSample:
        began_ns = time.monotonic_ns()
        rates, memory = self._ask("nvmlDeviceGetUtilizationRates"), self._memory()
        rows = self._ask("nvmlDeviceGetRemappedRows")
        numbers = self._numbers(SAMPLED)
        busy = self._busy_share()
        if busy is None and rates is not None:
            busy = rates.gpu / PERCENT
        return GpuSample(
            self._id,
            began_ns,
            gpu_share=busy,
            memory_busy_share=rates.memory / PERCENT if rates is not None else None,
            memory_used_bytes=_sane(memory.used) if memory is not None else None,
            reasons=self._reasons(),
            temperature_c=self._temperature(),
            memory_temperature_c=self._memory_temperature(),
            pcie_rx_bytes_per_s=self._throughput("NVML_PCIE_UTIL_RX_BYTES"),
            pcie_tx_bytes_per_s=self._throughput("NVML_PCIE_UTIL_TX_BYTES"),
            rows_remapped=rows[0] + rows[1] if rows else None,
            remap_pending=bool(rows[2]) if rows else None,
            remap_failed=bool(rows[3]) if rows else None,
            power_capped_ns=self._capped("NVML_PERF_POLICY_POWER"),
            heat_capped_ns=self._capped("NVML_PERF_POLICY_THERMAL"),
            asking_ns=time.monotonic_ns() - began_ns,
            **numbers,
        )

    def _busy_share(self) -> float | None:
        """The mean of what the driver sampled since we last asked."""
        found = self._ask("nvmlDeviceGetSamples", "NVML_GPU_UTILIZATION_SAMPLES", self._seen_us)
        samples = [each for each in found[1] if each.timeStamp > self._seen_us] if found else []
        if not samples:
            return None
        self._seen_us = max(each.timeStamp for each in samples)
        return float(min(1.0, sum(each.sampleValue.uiVal for each in samples) / len(samples) / PERCENT))

    def _reasons(self) -> int | None:
        found = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if found is None:  # its name before driver 535
            found = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if found is None else _sane(found)

    def _temperature(self) -> int | None:
        found = self._ask("nvmlDeviceGetTemperatureV", "NVML_TEMPERATURE_GPU")
        if found is None:  # its name before driver 570
            found = self._ask("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU")
        return _sane(found)

    def _memory_temperature(self) -> int | None:
        field = getattr(self._nvml.api, "NVML_FI_DEV_MEMORY_TEMP", None)
        found = None if field is None else self._ask("nvmlDeviceGetFieldValues", [field])
        if not found or found[0].nvmlReturn != 0:
            return None
        return int(found[0].value.uiVal) or None  # 0 degrees: it has no such sensor

    def _throughput(self, direction: str) -> int | None:
        found = self._ask("nvmlDeviceGetPcieThroughput", direction)
        return None if found is None else int(found) * KILO

    def _capped(self, policy: str) -> int | None:
        """How long the clock was held down for this since we last asked."""
        found = self._ask("nvmlDeviceGetViolationStatus", policy)
        now = int(found.violationTime) if found is not None else None
        before, self._capped_ns[policy] = self._capped_ns.get(policy), now
        return None if now is None or before is None or now < before else now - before

    # --- who is on it -------------------------------------------------------------

    def processes(self, at_ns: int) -> list[GpuProcess]:
        shares = self._process_shares()
        found: dict[int, GpuProcess] = {}
        for pid, size, graphics in self._holders():
            known = found.get(pid)
            found[pid] = GpuProcess(
                self._id, at_ns, pid, comm_of(pid), size, shares.get(pid), graphics and known is None
            )
        for pid, share in shares.items():  # told to work, but not to hold memory
            if pid not in found and share > 0:
                found[pid] = GpuProcess(self._id, at_ns, pid, comm_of(pid), None, share)
        return list(found.values())[:MAX_PROCESSES]

    def _holders(self) -> Iterable[tuple[int, int | None, bool]]:
        for kind in ("Graphics", "Compute"):
            listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses_v3")
            if listed is None:
                listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses_v2")
            for each in listed or ():
                yield int(each.pid), _sane(each.usedGpuMemory), kind == "Graphics"

    def _process_shares(self) -> dict[int, float]:
        """Part of the time that each process's kernels ran, since we last asked."""
        samples = self._ask("nvmlDeviceGetProcessUtilization", self._processes_seen_us) or ()
        values: dict[int, list[int]] = {}
        for each in samples:
            if each.pid and each.timeStamp > self._processes_seen_us and each.smUtil <= PERCENT:
                values.setdefault(int(each.pid), []).append(int(each.smUtil))
        if values:
            self._processes_seen_us = max(each.timeStamp for each in samples)
        return {pid: sum(each) / len(each) / PERCENT for pid, each in values.items()}


def comm_of(pid: int) -> str | None:
    """The name of a process now; None when it is gone, or in a name space we do not see."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def _sane(value: int | None) -> int | None:
    """Numbers no card has, such as all bits set, stand for unknown."""
    return int(value) if value is not None and 0 <= value < IMPOSSIBLE else None


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
