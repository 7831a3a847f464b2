"""One kind about one process is one finding, and no time that it covers is lost."""

from __future__ import annotations

from itertools import permutations

import pytest

from ingero.detectors import once
from ingero.model.finding import Effect
from tests.builders import finding

EARLY = finding(
    "clang", effect=Effect("step", None, 32, 1_200, 0.309), episodes=[(0, 4)], first_ns=0, last_ns=4
)
LATER = finding(
    "neighbour", effect=Effect("step", 30, 45, 2_700, 0.324), episodes=[(3, 12)], first_ns=3, last_ns=12
)
AGAIN = finding(
    "again", effect=Effect("step", 30, 40, 900, 0.26), episodes=[(20, 24)], first_ns=20, last_ns=24
)


@pytest.mark.parametrize("order", list(permutations([EARLY, LATER, AGAIN])))
def test_the_worst_is_told_with_the_time_of_all(order: tuple) -> None:
    [told] = once(list(order))
    assert (told.title, told.effect) == (LATER.title, LATER.effect)
    assert told.episodes == [(0, 12), (20, 24)]
    assert (told.first_ns, told.last_ns) == (0, 24)


def test_another_process_is_another_finding() -> None:
    assert once([EARLY, finding(pid=200)]) == [EARLY, finding(pid=200)]
