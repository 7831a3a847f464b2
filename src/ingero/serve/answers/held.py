"""GPU time that processes hold while a trace runs, by the rule of cost_use.py, sample by sample."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ingero.model.gpus import GpuNews, GpuProcess, GpuSample
from ingero.serve.answers.cost_use import LONGEST_NS, parts
from ingero.units import SECOND


class Held:
    """Remembers when each GPU was looked at last."""

    def __init__(self) -> None:
        self._last_ns: dict[int, int] = {}

    def add(self, news: GpuNews) -> Iterator[tuple[int, float, float | None]]:
        """(pid, time held, time busy or None where that is not known) of every look and process."""
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
            for each, share in zip(there, shares.tolist(), strict=True):
                held = share * length_ns
                busy = None if sample.gpu_share is None else held * min(max(sample.gpu_share, 0.0), 1.0)
                yield each.pid, held, busy

    def _length(self, sample: GpuSample) -> int:
        before = self._last_ns.get(sample.gpu_id)
        self._last_ns[sample.gpu_id] = sample.at_ns
        length = sample.at_ns - before if before is not None else SECOND
        return length if 0 <= length <= LONGEST_NS else SECOND
