"""Series of the GPUs, from what NVML told last, and the time processes held them; without NVML there are
none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ingero import units
from ingero.model.finding import Finding
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample, Prices
from ingero.serve.answers.cost_use import LONGEST_NS, Rows, lost_to, money_of, parts
from ingero.serve.answers.process_metrics import NOBODY, ProcessSeries
from ingero.units import SECOND

# Series of the GPUs, from what NVML told last; without NVML there are none.
#
# A card that was not heard of for a while has no series any more: what it did then says
# nothing of now.

OLD_NS = 15_000_000_000
PROCESSES = 64  # with series of their own, those with most memory
HERTZ = 1_000_000
# Metric: field of a sample, and what one of it is in the metric's unit.
GAUGES = {
    "gpu.utilization": ("gpu_share", 1.0),
    "gpu.memory.used": ("memory_used_bytes", 1.0),
    "gpu.power": ("power_mw", 1e-3),
    "gpu.power.limit": ("power_limit_mw", 1e-3),
    "gpu.temperature": ("temperature_c", 1.0),
}
CLOCKS = {"sm": "sm_clock_mhz", "memory": "memory_clock_mhz"}
CAPPED = {"power": "power_capped_ns", "heat": "heat_capped_ns"}
# Bits of the driver's reasons for a slow clock that are no choice and no idling.
FORCED = {0x4: "power", 0x8: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power-brake"}
ERRORS = {"corrected": "ecc_corrected", "uncorrected": "ecc_uncorrected"}
Row = tuple[str, tuple[str, ...], float, None]


class GpuSeries:
    """What the cards told, added up where it is to be counted."""

    def __init__(self) -> None:
        self._cards: dict[int, GpuCard] = {}
        self._last: dict[int, GpuSample] = {}
        self._capped_ns: dict[tuple[int, str], int] = {}
        self._began: dict[tuple[int, str], int] = {}
        self._processes: list[GpuProcess] = []
        self._now_ns = 0

    def add(self, news: GpuNews, now_ns: int) -> None:
        self._now_ns = now_ns
        self._cards |= {card.gpu_id: card for card in news.cards}
        for sample in news.samples:
            self._count(sample)
            self._last[sample.gpu_id] = sample
        if news.samples:
            newest = {sample.gpu_id: sample.at_ns for sample in news.samples}
            self._processes = [each for each in news.processes if each.at_ns == newest.get(each.gpu_id)]

    def tell(self, cards: Iterable[GpuCard], processes: list[GpuProcess], now_ns: int) -> None:
        """What is known of a past recording beside its samples: cards, and who was on them at its end."""
        self._cards |= {card.gpu_id: card for card in cards}
        self._processes, self._now_ns = processes, now_ns

    def _count(self, sample: GpuSample) -> None:
        for reason, name in CAPPED.items():
            ns = getattr(sample, name)
            if ns is not None:
                key = sample.gpu_id, reason
                self._capped_ns[key] = self._capped_ns.get(key, 0) + ns
        before = self._last.get(sample.gpu_id)
        if sample.reasons is None:
            return
        held = _reasons(before.reasons) if before is not None and before.reasons is not None else set()
        for reason in set(FORCED.values()):
            key = sample.gpu_id, reason
            began = reason in _reasons(sample.reasons) and reason not in held
            self._began[key] = self._began.get(key, 0) + began

    def rows(self, labels_of: Callable[[int], tuple[str, ...]]) -> Iterator[Row]:
        fresh = {number: each for number, each in self._last.items() if self._now_ns - each.at_ns < OLD_NS}
        for number, sample in sorted(fresh.items()):
            yield from self._card_rows(number, sample)
        memory: dict[tuple[str, ...], int] = {}
        held = [each for each in self._processes if each.gpu_id in fresh and each.memory_bytes is not None]
        held.sort(key=lambda each: -(each.memory_bytes or 0))
        for place, each in enumerate(held):
            who = labels_of(each.pid) if place < PROCESSES else NOBODY.labels
            labels = (*who, str(each.gpu_id))
            memory[labels] = memory.get(labels, 0) + (each.memory_bytes or 0)
        yield from (("gpu.process.memory", labels, size, None) for labels, size in memory.items())

    def _card_rows(self, number: int, sample: GpuSample) -> Iterator[Row]:
        card = self._cards.get(number)
        gpu = (str(number), (card.uuid if card else None) or "", units.clean(card.name, 80) if card else "")
        if card is not None and card.memory_bytes is not None:
            yield "gpu.memory.total", gpu, card.memory_bytes, None
        for name, (attribute, scale) in GAUGES.items():
            value = getattr(sample, attribute)
            if value is not None:
                yield name, gpu, value * scale, None
        for clock, attribute in CLOCKS.items():
            value = getattr(sample, attribute)
            if value is not None:
                yield "gpu.clock", (*gpu, clock), value * HERTZ, None
        for kind, attribute in ERRORS.items():
            value = getattr(sample, attribute)
            if value is not None:
                yield "gpu.ecc.errors", (*gpu, kind), value, None
        for (other, reason), ns in self._capped_ns.items():
            if other == number:
                yield "gpu.throttled.time", (*gpu, reason), ns / 1e9, None
        for (other, reason), count in self._began.items():
            if other == number:
                yield "gpu.throttle.events", (*gpu, reason), count, None


def _reasons(mask: int) -> set[str]:
    return {reason for bit, reason in FORCED.items() if mask & bit}


# GPU time that processes hold while a trace runs, by the rule of cost_use.py, sample by sample.


class GpuLook(NamedTuple):
    """A look at a process on a GPU: what it held since the look before."""

    at_ns: int  # when that began
    held_ns: float
    busy_ns: float  # NaN: not known
    price: float  # of an hour; NaN: it has none


class GpuTimeHeld:
    """Remembers when each GPU was looked at last, and what it costs."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._price: dict[int, float] = {}
        self._last_ns: dict[int, int] = {}

    def add(self, news: GpuNews) -> Iterator[tuple[int, GpuLook]]:
        """With the process."""
        for card in news.cards:
            price = self._prices.of(units.clean(card.name, 80))
            self._price[card.gpu_id] = np.nan if price is None else price
        on_it: dict[tuple[int, int], list[GpuProcess]] = {}
        for each in news.processes:
            if not each.graphics:
                on_it.setdefault((each.gpu_id, each.at_ns), []).append(each)
        for sample in news.samples:
            length_ns = self._length(sample)
            there = on_it.get((sample.gpu_id, sample.at_ns), [])
            if not there or sample.lost:
                continue
            use = np.array([np.nan if each.sm_share is None else each.sm_share for each in there])
            shares = parts(np.zeros(len(there), np.int64), use, 1)
            busy = np.nan if sample.gpu_share is None else min(max(sample.gpu_share, 0.0), 1.0)
            price = self._price.get(sample.gpu_id, np.nan)
            for each, share in zip(there, shares.tolist(), strict=True):
                held = share * length_ns
                yield each.pid, GpuLook(sample.at_ns - length_ns, held, held * busy, price)

    def _length(self, sample: GpuSample) -> int:
        before = self._last_ns.get(sample.gpu_id)
        self._last_ns[sample.gpu_id] = sample.at_ns
        length = sample.at_ns - before if before is not None else SECOND
        return length if 0 <= length <= LONGEST_NS else SECOND


# What of that time was lost, by the rule of cost_use.py. The live diagnosis looks back some minutes and may
# change its mind about them; what is counted cannot be taken back. So a second is counted once it is old.


SETTLED_NS = 120 * SECOND  # before what the diagnosis looks back
KEPT_NS = 300 * SECOND  # of time that no diagnosis comes to
LOOK = np.dtype([(name, "<i8" if name == "at_ns" else "<f8") for name in GpuLook._fields])


class GpuTimeSpent:
    """Looks of which it is not yet said what was lost."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, ProcessSeries], list[GpuLook]] = {}

    def add(self, pid: int, account: ProcessSeries, look: GpuLook) -> None:
        """`at_ns` as findings have it."""
        self._waiting.setdefault((pid, account), []).append(look)

    def forget(self, before_ns: int) -> None:
        """Nothing is kept for ever where nobody diagnoses."""
        for key, looks in list(self._waiting.items()):
            if looks[0].at_ns < before_ns:
                self._keep(key, [look for look in looks if look.at_ns >= before_ns])

    def settle(self, findings: Sequence[Finding], until_ns: int) -> None:
        """Count what began before that; findings are of the time up to now."""
        for (pid, account), looks in list(self._waiting.items()):
            mine = [each for each in findings if each.victim.pid == pid]
            for each in mine:  # a series that begins with its first second shows no increase
                account.lost_ns.setdefault(each.kind, 0.0)
                account.lost_money.setdefault(each.kind, 0.0)
            if looks[0].at_ns < until_ns:
                told = looks if mine else [look for look in looks if look.at_ns < until_ns]
                _settle(account, np.array(told, LOOK), mine, until_ns)
                self._keep((pid, account), [look for look in looks if look.at_ns >= until_ns])

    def _keep(self, key: tuple[int, ProcessSeries], looks: list[GpuLook]) -> None:
        if looks:
            self._waiting[key] = looks
        else:
            del self._waiting[key]


def _settle(account: ProcessSeries, rows: Rows, findings: Sequence[Finding], until_ns: int) -> None:
    now = rows["at_ns"] < until_ns
    left = np.nan_to_num(rows["held_ns"] - rows["busy_ns"])
    for kind, ns in lost_to(findings, rows).items():
        account.lost_ns[kind] += float(ns[now].sum())
        account.lost_money[kind] += money_of(ns[now], rows["price"][now]) or 0.0
        left -= ns
    account.spare_ns += max(float(left[now].sum()), 0.0)
