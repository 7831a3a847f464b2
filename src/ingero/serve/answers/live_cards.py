"""The cards as the live view shows them: the last sample of each."""

from __future__ import annotations

from ingero.model.gpus import FORCED, GpuCard, GpuNews, GpuSample, reason_names
from ingero.model.live import CardLine


class LiveCards:
    """What was last told of every card."""

    def __init__(self) -> None:
        self._cards: dict[int, GpuCard] = {}
        self._samples: dict[int, GpuSample] = {}

    def add(self, news: GpuNews) -> None:
        self._cards |= {card.gpu_id: card for card in news.cards}
        self._samples |= {sample.gpu_id: sample for sample in news.samples}

    def lines(self) -> tuple[CardLine, ...]:
        return tuple(self._line(gpu_id, sample) for gpu_id, sample in sorted(self._samples.items()))

    def _line(self, gpu_id: int, sample: GpuSample) -> CardLine:
        card = self._cards.get(gpu_id) or GpuCard(gpu_id, "GPU")
        return CardLine(
            gpu_id,
            card.name,
            sample.gpu_share,
            sample.memory_used_bytes,
            card.memory_bytes,
            sample.sm_clock_mhz,
            sample.power_mw,
            sample.power_limit_mw,
            sample.temperature_c,
            tuple(reason_names((sample.reasons or 0) & FORCED, plain=True)),
            sample.lost,
        )
