"""Waits for the interpreter's lock, marked by address and summed by thread."""

from __future__ import annotations

import numpy as np

from ingero.capture.threads import mark_gil
from ingero.model.layout import GilMark
from tests.builders import SECOND, thread, wait, window

MS = 1_000_000
LOCKS = {100: (0x5000, 0x6000), 200: (0, 0)}


def test_a_wait_is_for_the_gil_when_its_address_lies_in_the_runtime() -> None:
    addresses = [0x4FFF, 0x5000, 0x5FFF, 0x6000]
    seen = window(waits=[wait(address=address) for address in addresses])
    mark_gil(seen, LOCKS)
    assert seen.waits["gil"].tolist() == [GilMark.GIL_NO, GilMark.GIL_YES, GilMark.GIL_YES, GilMark.GIL_NO]


def test_only_waits_for_a_lock_qualify_and_unknown_processes_stay_unknown() -> None:
    seen = window(
        waits=[
            wait("net_wait", address=0x5000),  # a descriptor may be any number
            wait(pid=200, address=0x5000),  # no Python there
            wait(pid=300, address=0x5000),  # nothing known
        ]
    )
    mark_gil(seen, LOCKS)
    assert seen.waits["gil"].tolist() == [GilMark.GIL_UNKNOWN, GilMark.GIL_NO, GilMark.GIL_UNKNOWN]


def test_the_time_blocked_is_summed_by_thread_without_the_wait_for_a_core() -> None:
    seen = window(
        SECOND,
        waits=[
            wait(took_ns=5 * MS, tid=101, address=0x5008),
            wait(took_ns=7 * MS, runqueue_ns=2 * MS, tid=101, address=0x5008),
            wait(took_ns=9 * MS, tid=101, address=0x9000),
            wait(took_ns=3 * MS, tid=102, address=0x5008),
        ],
        threads=[thread(tid=101), thread(tid=102), thread(tid=103), thread(200), thread(300)],
    )
    mark_gil(seen, LOCKS)
    assert seen.threads["gil_ns"].tolist() == [10 * MS, 3 * MS, 0, 0, -1]


def test_a_row_for_an_earlier_window_takes_nothing_and_bystanding_threads_are_unknown() -> None:
    late, helper = thread(tid=101), thread(tid=102)
    late["window_ns"], helper["feeder"] = SECOND, False
    waits = [wait(took_ns=5 * MS, tid=tid, address=0x5008) for tid in (101, 102)]
    seen = window(2 * SECOND, waits=waits, threads=[late, thread(tid=101), helper])
    mark_gil(seen, LOCKS)
    assert seen.threads["gil_ns"].tolist() == [0, 5 * MS, -1]


def test_nothing_to_mark_is_no_trouble() -> None:
    seen = window()
    mark_gil(seen, LOCKS)
    mark_gil(seen, {})
    assert not np.any(seen.waits["gil"])
