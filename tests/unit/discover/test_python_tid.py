"""Where a thread's own data holds its number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingero.discover.process_memory import NotThereError
from ingero.discover.python_states import PythonThreadState
from ingero.discover.python_threads import find_tid

GLIBC = 720


class Descriptors:
    """Threads' data by their address: what stands where, besides the address itself at the start."""

    def __init__(self, **threads: dict[int, int]) -> None:
        self.threads = {int(name.removeprefix("t")): places for name, places in threads.items()}

    def words_up_to(self, address: int, count: int) -> Any:
        if address not in self.threads:
            raise NotThereError(address)
        values = np.zeros(2 * count, "<i4")
        values.view("<u8")[0] = address
        for at, value in self.threads[address].items():
            values[at // 4] = value
        return values.view("<u8")

    def find(self, *alive: int) -> int:
        states = [PythonThreadState(0x1000 + each, each, 0) for each in self.threads]
        return find_tid(self, states, alive)  # type: ignore[arg-type]


def test_the_place_with_another_number_in_every_thread_is_taken() -> None:
    memory = Descriptors(t4096={40: 12, 100: 10, 104: 10}, t8192={40: 12, 100: 11, 104: 10})
    assert memory.find(10, 11, 12) == 100


@pytest.mark.parametrize("at", [GLIBC, 48])
def test_of_one_thread_alone_only_a_known_place_is_believed(at: int) -> None:
    assert Descriptors(t4096={8: 1, at: 1, 1000: 1}).find(1) == at
    assert Descriptors(t4096={8: 1, 1000: 1}).find(1) == 0


def test_threads_that_ended_are_passed_over() -> None:
    memory = Descriptors(t4096={GLIBC: 10}, t8192={GLIBC: 11})
    memory.threads[0x3000] = {0: 7}  # what begins with another address is no thread any more
    assert memory.find(10, 11) == GLIBC


def test_numbers_of_nobody_are_no_place() -> None:
    assert Descriptors(t4096={GLIBC: 10}, t8192={GLIBC: 99}).find(10, 11) == 0
    assert Descriptors().find(10) == 0
