"""Where the C library keeps a thread's number, for versions of Python that do not (before 3.11).

A thread's own data is searched for the numbers that the threads of its process have: a place
with another one of them in every thread is the one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

import numpy as np

from ingero.discover.python_memory import NotThereError, ProcessMemory
from ingero.discover.python_states import State

SEARCHED_BYTES = 2048
MAX_THREADS_COMPARED = 32
KNOWN = (720, 48)  # glibc, musl; x86-64


def find_tid(memory: ProcessMemory, states: Iterable[State], alive: Collection[int]) -> int:
    """Bytes from the start of a thread's data to its number; 0: not found."""
    numbers = _numbers(memory, states, alive)
    fits = [at for at in numbers[0] if _differ([each.get(at) for each in numbers])] if numbers else []
    known = [at for at in KNOWN if at in fits]
    # With one thread alone, and a number like 1, others may fit as well.
    return (known or (fits if len(numbers) > 1 else []) or [0])[0]


def _numbers(memory: ProcessMemory, states: Iterable[State], alive: Collection[int]) -> list[dict[int, int]]:
    """Of each thread: where in its data a number of a living thread stands."""
    found = []
    threads = dict.fromkeys(state.thread_id for state in states if state.thread_id)
    wanted = np.fromiter(alive, np.int32)
    for thread_id in list(threads)[-MAX_THREADS_COMPARED:]:
        with suppress(NotThereError):
            words = memory.words_up_to(thread_id, SEARCHED_BYTES // 8)
            if int(words[0]) != thread_id:
                continue  # ended: its memory is something else now
            values = words.view("<i4")
            places = np.flatnonzero(np.isin(values, wanted)).tolist()
            found.append({4 * at: int(values[at]) for at in places})
    return found


def _differ(numbers: list[int | None]) -> bool:
    return None not in numbers and len(set(numbers)) == len(numbers)
