"""What the driver tells of a GPU: what the card is, how it does now, who is on it.

Plain values; None where the card, the driver or a missing right keeps one from being
known, never 0. `gpu_id` is the number NVML gives a card, the same as in events.
Instants are CLOCK_MONOTONIC nanoseconds until they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

# Why a card's clock is what it is: bit, the driver's word for it, and ours for people.
REASONS = (
    (0x1, "gpu_idle", "idle"),
    (0x2, "applications_clocks_setting", "clocks set by the user"),
    (0x4, "sw_power_cap", "power limit"),
    (0x8, "hw_slowdown", "hardware slowdown"),
    (0x10, "sync_boost", "sync boost"),
    (0x20, "sw_thermal_slowdown", "heat (software)"),
    (0x40, "hw_thermal_slowdown", "heat (hardware)"),
    (0x80, "hw_power_brake_slowdown", "power brake"),
    (0x100, "display_clock_setting", "display clocks"),
    (0x200, "board_limit", "board limit"),
    (0x400, "reliability", "reliability voltage"),
)
SW_POWER_CAP, HW_SLOWDOWN = 0x4, 0x8
HEAT = 0x20 | 0x40
POWER_BRAKE = 0x80
# Bits that say the card runs slower than it was built to: no choice of the user, no idling.
FORCED = HW_SLOWDOWN | HEAT | POWER_BRAKE
# One lane of PCI Express, bytes per ns in one direction, by generation (after its line code).
LANE_BYTES_PER_NS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def reason_names(mask: int | None, plain: bool = False) -> list[str]:
    """The reasons in a mask; bits nobody has a name for are shown as they are."""
    if mask is None:
        return []
    names = [words if plain else name for bit, name, words in REASONS if mask & bit]
    unknown = mask & ~sum(bit for bit, _, _ in REASONS)
    return [*names, *([f"{unknown:#x}"] if unknown else [])]


def link_bytes_per_ns(generation: int | None, width: int | None) -> float | None:
    """What a PCI Express link carries in one direction, before packets' own overhead."""
    lane = LANE_BYTES_PER_NS.get(generation) if generation is not None else None
    return lane * width if lane and width else None


class Prices(msgspec.Struct, frozen=True):
    """For one GPU and hour; by model, the longest that is part of a GPU's name."""

    price: float | None = None
    by_model: dict[str, float] = {}
    currency: str = "$"

    def of(self, model: str | None) -> float | None:
        fit = [name for name in self.by_model if model and name.lower() in model.lower()]
        return self.by_model[max(fit, key=len)] if fit else self.price


UNPRICED = Prices()


@dataclass(frozen=True, slots=True)
class GpuCard:
    """What does not change from second to second."""

    gpu_id: int
    name: str
    uuid: str | None = None
    bus_id: str | None = None
    driver: str | None = None
    memory_bytes: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    sm_clock_set_mhz: int | None = None  # applications clock: what the user asked for
    sm_clock_default_mhz: int | None = None
    power_limit_default_mw: int | None = None
    slowdown_c: int | None = None  # from this temperature on the hardware slows down
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    compute_mode: str | None = None
    mig: bool | None = None
    unsupported: tuple[str, ...] = ()  # what this card or driver does not tell


@dataclass(frozen=True, slots=True)
class GpuSample:
    """A card at one moment."""

    gpu_id: int
    at_ns: int
    gpu_share: float | None = None  # of the time since the last sample a kernel ran
    memory_busy_share: float | None = None  # of the last moment its memory was read or written
    memory_used_bytes: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    reasons: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_rx_bytes_per_s: int | None = None  # to the card
    pcie_tx_bytes_per_s: int | None = None
    ecc_corrected: int | None = None  # since the driver was loaded
    ecc_uncorrected: int | None = None
    ecc_corrected_ever: int | None = None
    ecc_uncorrected_ever: int | None = None
    rows_remapped: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    power_capped_ns: int | None = None  # since the last sample
    heat_capped_ns: int | None = None
    lost: bool = False  # fell off the bus, or needs a reset
    asking_ns: int | None = None  # what reading all this took


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a card at one moment."""

    gpu_id: int
    at_ns: int
    pid: int
    comm: str | None
    memory_bytes: int | None = None
    sm_share: float | None = None  # of the time since the last sample its kernels ran
    graphics: bool = False


@dataclass(frozen=True, slots=True)
class GpuNews:
    """What a look at the cards brought since the last one that was taken."""

    cards: tuple[GpuCard, ...] = ()
    samples: tuple[GpuSample, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    trouble: tuple[str, ...] = ()  # what is not watched from now on, each said once
