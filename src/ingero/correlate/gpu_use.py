"""The cards a job works on, and how they did, slice by slice.

A job's cards come from the driver's own list of who is on which card; where it does not
name the job, from the devices its calls chose; else from there being only one card.
Where none of that tells, the job has no card here and nobody concludes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ingero.model.facts import Facts
from ingero.model.gpus import FORCED, SW_POWER_CAP, GpuCard

LEAST_USUAL = 3  # slices that tell a card's usual clock
WORKS_SHARE = 0.05  # of the time its kernels run: less is a desktop, or a tool that looks at the card
LOWERED = 0.98  # of the power limit a card comes with: limits are set in whole watts


@dataclass(frozen=True, slots=True)
class GpuUser:
    """Somebody on a card during a slice; None: not told."""

    pid: int
    gpu_id: int
    sm_share: float | None
    memory_bytes: int | None


class Cards:
    """What is known about the cards of one recording."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts.cards
        self._chosen = facts.gpus
        self._samples = {(int(row["slice"]), int(row["gpu_id"])): row for row in self._facts.samples}
        self._users: dict[int, list[GpuUser]] = {}
        self._on: dict[int, set[int]] = {}
        for row in self._facts.users:
            user = GpuUser(
                int(row["pid"]), int(row["gpu_id"]), known(row["sm_share"]), _whole(row["memory_bytes"])
            )
            self._users.setdefault(int(row["slice"]), []).append(user)
            self._on.setdefault(user.pid, set()).add(user.gpu_id)
        self._full: dict[int, float | None] = {}

    @property
    def watched(self) -> bool:
        return bool(self._samples)

    def card(self, gpu_id: int) -> GpuCard:
        return self._facts.cards.get(gpu_id) or GpuCard(gpu_id, "GPU")

    def of(self, pid: int) -> set[int]:
        """The cards of a process; empty: not known."""
        found = self._on.get(pid) or self._chosen.get(pid)
        if found:
            return set(found)
        every = {gpu_id for _, gpu_id in self._samples}
        return every if len(every) == 1 else set()

    def at(self, number: int, gpu_id: int) -> np.void | None:
        """A card during a slice; None: nobody asked it then."""
        return self._samples.get((number, gpu_id))

    def during(self, number: int, pid: int) -> Iterator[np.void]:
        """The cards of a process during a slice."""
        for gpu_id in sorted(self.of(pid)):
            row = self.at(number, gpu_id)
            if row is not None:
                yield row

    def users(self, number: int, gpu_ids: set[int]) -> list[GpuUser]:
        return [each for each in self._users.get(number, ()) if each.gpu_id in gpu_ids]

    def shared(self, pid: int, numbers: Iterable[int]) -> bool:
        """Whether others work on the cards of a process in these slices."""
        mine = self.of(pid)
        return any(
            user.pid != pid and (user.sm_share or 0.0) >= WORKS_SHARE
            for number in numbers
            for user in self.users(number, mine)
        )

    def busy_for(self, pid: int, number: int) -> float | None:
        """How busy its cards are in a slice; None: they do not tell, or work for others, too."""
        if self.shared(pid, (number,)):
            return None
        shares = [known(row["gpu_share"]) for row in self.during(number, pid)]
        return max((share for share in shares if share is not None), default=None)

    def memory_of(self, pid: int) -> list[tuple[int, int]]:
        """Slice and memory held by a process on all cards, where that was told."""
        sums: dict[int, int] = {}
        for number in sorted(self._users):
            for user in self._users[number]:
                if user.pid == pid and user.memory_bytes is not None:
                    sums[number] = sums.get(number, 0) + user.memory_bytes
        return sorted(sums.items())

    def name(self, pid: int) -> str:
        return self._facts.names.get(pid) or f"pid {pid}"

    def holding(self, row: np.void) -> int:
        """The reasons that hold this card down though nobody wants it.

        Its power limit is one only where somebody lowered it: at full load a healthy card reaches it.
        """
        default = self.card(int(row["gpu_id"])).power_limit_default_mw
        limit = known(row["power_limit_mw"])
        lowered = limit is not None and default is not None and limit < LOWERED * default
        return FORCED | (SW_POWER_CAP if lowered else 0)

    def held_share(self, row: np.void) -> float:
        """Part of a card's busy time in which something held it down; 0 where nobody knows."""
        capped = row["capped_share"] if self.holding(row) & SW_POWER_CAP else np.nan
        return float(np.nan_to_num(np.fmax(row["forced_share"], capped)))

    def full_clock_mhz(self, gpu_id: int) -> float | None:
        """The clock of a busy card that nothing holds down: its usual one here, else its highest."""
        if gpu_id not in self._full:
            free = [
                float(row["busy_clock_mhz"])
                for (_, of), row in self._samples.items()
                if of == gpu_id and row["busy_clock_mhz"] > 0 and not self.held_share(row)
            ]
            self._full[gpu_id] = float(np.median(free)) if len(free) >= LEAST_USUAL else self._highest(gpu_id)
        return self._full[gpu_id]

    def _highest(self, gpu_id: int) -> float | None:
        """What it can do, or what its owner set it to where that is less than it came with."""
        card = self.card(gpu_id)
        limit, default = card.sm_clock_set_mhz, card.sm_clock_default_mhz
        if limit and default and limit < default:
            return float(min(limit, card.sm_clock_max_mhz or limit))
        return card.sm_clock_max_mhz


def known(value: float) -> float | None:
    """NaN is how the tables say that nobody knows."""
    return float(value) if np.isfinite(value) else None


def _whole(value: float) -> int | None:
    return int(value) if np.isfinite(value) else None
