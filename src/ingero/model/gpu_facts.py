"""What a recording says about the cards, per slice, for the diagnosis.

Means over the samples of a slice; NaN where no sample told. "Busy" samples are those in
which a kernel ran for most of the time: clocks and links of an idle card say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ingero.model.gpus import GpuCard
from ingero.model.window import Records

BUSY_SHARE = 0.30  # of a sample's time: less, and a card may lower its clock and its link

GPU_SLICE = np.dtype(
    [
        ("slice", "<i8"),
        ("gpu_id", "<i8"),
        ("samples", "<f8"),
        ("gpu_share", "<f8"),
        ("busy_clock_mhz", "<f8"),  # of busy samples
        ("forced_share", "<f8"),  # of busy samples: the hardware or heat held the clock down
        ("capped_share", "<f8"),  # of busy samples: the power limit did
        ("reasons", "<f8"),  # bits of any busy sample
        ("power_mw", "<f8"),
        ("power_limit_mw", "<f8"),
        ("temperature_c", "<f8"),
        ("pcie_gen", "<f8"),  # the most of busy samples
        ("pcie_width", "<f8"),
        ("pcie_rx_bytes_per_s", "<f8"),
        ("pcie_tx_bytes_per_s", "<f8"),
        ("memory_used_bytes", "<f8"),
    ]
)
GPU_USER = np.dtype(
    [
        ("slice", "<i8"),
        ("gpu_id", "<i8"),
        ("pid", "<i8"),
        ("sm_share", "<f8"),
        ("memory_bytes", "<f8"),
    ]
)


@dataclass(frozen=True, slots=True)
class CardTrouble:
    """What a card's own counters tell of its health, over the whole range."""

    gpu_id: int
    ecc_uncorrected: int  # new ones
    remap_failed: bool
    lost: bool
    first_ns: int  # when it was first told
    last_ns: int


@dataclass(slots=True)
class GpuFacts:
    """The cards of a machine over a stretch of time."""

    cards: dict[int, GpuCard] = field(default_factory=dict)
    samples: Records = field(default_factory=lambda: np.zeros(0, GPU_SLICE))
    users: Records = field(default_factory=lambda: np.zeros(0, GPU_USER))
    names: dict[int, str] = field(default_factory=dict)  # of processes on a card
    trouble: list[CardTrouble] = field(default_factory=list)
    why: str = ""  # there are no samples, or not at all times
