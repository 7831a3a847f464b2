"""Threads that take turns are slowed together, threads that run at once each by itself."""

from __future__ import annotations

import numpy as np
import pytest

from ingero.attach.kernel import Detail
from ingero.governor.governor import at_once
from ingero.model.layout import Bucket
from ingero.model.window import THREAD_TIME

SECOND = 1_000_000_000


def threads(*on_core: float) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    rows = np.zeros(len(on_core), THREAD_TIME)
    rows["pid"], rows["feeder"] = 100, True
    rows["tid"] = range(100, 100 + len(on_core))
    for row, share in zip(rows, on_core, strict=True):
        row["ns"][Bucket.HOST_CPU] = int(share * SECOND)
        row["ns"][Bucket.LOCK_WAIT] = SECOND - int(share * SECOND)
    return rows


@pytest.mark.parametrize(
    ("on_core", "number"), [((1.0,), 1.0), ((0.6, 0.4), 1.0), ((0.2, 0.1), 1.0), ((1.0, 0.9, 0.6), 2.5)]
)
def test_how_many_threads_run_at_once(on_core: tuple[float, ...], number: float) -> None:
    assert at_once(threads(*on_core)) == {100: pytest.approx(number)}


def test_threads_that_feed_no_gpu_do_not_count() -> None:
    rows = threads(1.0, 1.0)
    rows["feeder"] = False, True
    assert at_once(rows) == {100: 1.0}


def test_however_small_a_budget_is_stacks_stay_within_their_part_of_it() -> None:
    assert Detail(walk_share=0.0025).walk_share_in_kernel == 164
    assert Detail(walk_share=1e-7).walk_share_in_kernel == 1
    assert Detail().walk_share_in_kernel == 0  # as it comes
