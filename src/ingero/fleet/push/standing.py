"""How this node stands among its peers: what the collector said last, and its limits held against each round
while it is away.

Peers change, so limits are good for a short time only. Then nothing is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from ingero.fleet.limits import ROUNDS, is_beyond, is_well_within, measured
from ingero.model.fleet import ROUND_S, Advice, Health

AWAY_S = 2.5 * ROUND_S  # without an answer: from then on the node judges itself
GOOD_S = 90.0  # so long a limit counts
Key = tuple[str, int | None, int | None]


class OwnStanding:
    """`told` and `look` may come from two threads; each replaces what is known at once."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._advice: tuple[Advice, ...] = ()
        self._told_s = 0.0
        self._streaks: dict[Key, int] = {}  # rounds that speak for a change, since the collector is away

    @property
    def advice(self) -> tuple[Advice, ...]:
        return self._advice if self._now_s() - self._told_s < GOOD_S else ()

    @property
    def by_itself(self) -> bool:
        """The collector has not answered lately: what is said is the node's own judgement."""
        return bool(self.advice) and self._now_s() - self._told_s >= AWAY_S

    def told(self, advice: tuple[Advice, ...]) -> None:
        """The collector has answered."""
        self._streaks = {}
        self._advice, self._told_s = advice, self._now_s()

    def look(self, health: Health) -> None:
        """A round of this node."""
        known = self._advice
        if not self.by_itself:
            return
        judged = tuple(now for each in known if (now := self._judged(each, health)) is not None)
        if self._advice is known:  # else the collector has answered meanwhile
            self._advice = judged

    def _judged(self, known: Advice, health: Health) -> Advice | None:
        value = measured(health, known.measure, known.pid, known.gpu)
        if value is None:
            return None
        key = known.measure, known.pid, known.gpu
        speaks = (
            is_well_within(known.measure, value, known.limit, known.median)
            if known.straggles
            else is_beyond(known.measure, value, known.limit)
        )
        self._streaks[key] = self._streaks.get(key, 0) + 1 if speaks else 0
        turned = self._streaks[key] >= ROUNDS
        if turned:
            self._streaks[key] = 0
        return msgspec.structs.replace(known, value=value, straggles=known.straggles != turned)
