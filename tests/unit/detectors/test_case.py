"""Which part of a recording a finding is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from ingero.detectors.detector import Case
from tests.facts import MS


def test_a_slice_that_began_a_little_before_the_finding_is_part_of_it() -> None:
    """Left out, the proof spoke of 2.2 s of 4 s where its own SQL and the bar had 3.6 s of 5 s."""
    facts = SimpleNamespace(origin_ns=0, slice_ns=2000 * MS)
    case = SimpleNamespace(timeline=SimpleNamespace(facts=facts), first_ns=4068 * MS, last_ns=9074 * MS)
    assert Case.covers(cast(Any, case), np.arange(6)).tolist() == [False, False, True, True, True, False]
