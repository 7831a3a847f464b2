"""What a Python thread is called where: its thread state, and its number, as the C library, its container
and the machine have them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ingero.discover.process_memory import NotThereError, ProcessMemory, Words, pointers
from ingero.discover.python_states import PythonThreadState

# Where a thread keeps the pointer to its Python thread state, as seen from its thread pointer.
#
# CPython keeps it under a pthread key. The C library's table of keys is not known from
# here, but thread states are, and of each the thread: the place is the one that holds the
# thread's own state in every thread. glibc has the first 32 keys in the thread's own
# descriptor, as pairs of a number and a value, later ones behind a pointer in it; musl has
# all of them behind a pointer. The TLS variable that newer versions have is empty while a
# thread does not hold the lock, and is not meant here.
#
# Only x86-64: there pthread_self() is the thread pointer, whose first word is itself.

DESCRIPTOR_BYTES = 0x900  # of glibc's struct pthread, which is the largest
BLOCK_BYTES = 1024  # 32 pairs in glibc, 128 words in musl
FIRST_KEY = 0x318  # value of key 0 in every glibc for x86-64 so far; only decides between several fits
DIRECT_KEYS = 32
MAX_THREADS_COMPARED = 64
ENOUGH_SHARE = 0.75  # of the threads; two must agree
Place = tuple[int, int]  # in the descriptor the pointer to a block, or -1; from the descriptor or the block


@dataclass(frozen=True, slots=True)
class Slot:
    """state = *(thread pointer + at), with a block *(*(thread pointer + block) + at)."""

    at: int
    block: int | None = None

    def __str__(self) -> str:
        if self.block is None:
            return f"thread state by pthread key at {self.at:#x}"
        return f"thread state by pthread key at {self.at:#x} behind {self.block:#x}"


def find_slot(
    memory: ProcessMemory, states: Iterable[PythonThreadState], alive: Collection[int], key: int | None
) -> Slot | None:
    """The place that fits every thread; `alive` are their native ids, `key` which one it should be."""
    bound = [state for state in states if state.thread_id]
    by_thread: dict[int, set[int]] = {}
    for state in [state for state in bound if state.native_id in alive] or bound:
        by_thread.setdefault(state.thread_id, set()).add(state.address)
    threads = dict(list(by_thread.items())[-MAX_THREADS_COMPARED:])  # the main thread is the last
    for places in (_behind, _direct) if key is not None and key >= DIRECT_KEYS else (_direct, _behind):
        fits = _common(memory, threads, places)
        if fits:
            block, at = min(fits, key=lambda fit: (not _is_of_key(fit, key), fit))
            return Slot(at, None if block < 0 else block)
    return None


def _is_of_key(place: Place, key: int | None) -> bool:
    """Whether the C libraries known have this key there."""
    block, at = place
    if key is None:
        return False
    return at == FIRST_KEY + 16 * key if block < 0 else at in (8 + 16 * (key % DIRECT_KEYS), 8 * key)


def _common(
    memory: ProcessMemory,
    threads: dict[int, set[int]],
    places: Callable[[ProcessMemory, Words, set[int]], Iterator[Place]],
) -> list[Place]:
    """Places that hold one of the thread's states, in every thread but for those that begin or end.

    The oldest, which comes last, is none of these: what does not fit it was seen by chance.
    """
    counts: Counter[Place] = Counter()
    having, oldest = 0, set[Place]()
    for thread_id, addresses in threads.items():
        with suppress(NotThereError):
            words = memory.words_up_to(thread_id, DESCRIPTOR_BYTES // 8)
            if int(words[0]) != thread_id:
                continue  # ended: its memory is something else now
            found = set(places(memory, words, addresses))
            counts.update(found)
            having, oldest = having + bool(found), found or oldest
    return [place for place in oldest if counts[place] >= ENOUGH_SHARE * having]


def _direct(memory: ProcessMemory, words: Words, states: set[int]) -> Iterator[Place]:
    """In the descriptor itself, as a pair with the key's number of uses, which is odd while in use."""
    del memory
    for index in _holding(words, states):
        if index and int(words[index - 1]) & 1 and int(words[index - 1]) < 1 << 32:
            yield -1, index * 8


def _behind(memory: ProcessMemory, words: Words, states: set[int]) -> Iterator[Place]:
    """Behind any pointer of the descriptor; musl has the block right behind the descriptor itself."""
    for index in pointers(words)[1:]:  # the first is to itself
        with suppress(NotThereError):
            block = memory.words_up_to(int(words[index]), BLOCK_BYTES // 8)
            yield from ((int(index) * 8, at * 8) for at in _holding(block, states))


def _holding(words: Words, states: set[int]) -> list[int]:
    wanted = np.fromiter(states, np.uint64, len(states))
    return [int(index) for index in np.flatnonzero(np.isin(words, wanted))]


# Where the C library keeps a thread's number, for versions of Python that do not (before 3.11).
#
# A thread's own data is searched for the numbers that the threads of its process have: a place
# with another one of them in every thread is the one.


SEARCHED_BYTES = 2048
MAX_NUMBERS_COMPARED = 32
KNOWN = (720, 48)  # glibc, musl; x86-64


def find_tid(memory: ProcessMemory, states: Iterable[PythonThreadState], alive: Collection[int]) -> int:
    """Bytes from the start of a thread's data to its number; 0: not found."""
    numbers = _numbers(memory, states, alive)
    fits = [at for at in numbers[0] if _differ([each.get(at) for each in numbers])] if numbers else []
    known = [at for at in KNOWN if at in fits]
    # With one thread alone, and a number like 1, others may fit as well.
    return (known or (fits if len(numbers) > 1 else []) or [0])[0]


def _numbers(
    memory: ProcessMemory, states: Iterable[PythonThreadState], alive: Collection[int]
) -> list[dict[int, int]]:
    """Of each thread: where in its data a number of a living thread stands."""
    found = []
    threads = dict.fromkeys(state.thread_id for state in states if state.thread_id)
    wanted = np.fromiter(alive, np.int32)
    for thread_id in list(threads)[-MAX_NUMBERS_COMPARED:]:
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


# The numbers a process's threads have in its own pid namespace: a container counts its own.


_NUMBERS = re.compile(rb"^NSpid:\s*(\d+)(?:.*\s(\d+))?$", re.MULTILINE)


def own_numbers(pid: int) -> dict[int, int]:
    """By its own number, each thread's number here. Raises ProcessLookupError when the process is gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    found = {}
    for task in tasks:
        try:
            match = _NUMBERS.search((task / "status").read_bytes())
        except OSError:  # it has ended
            continue
        own = int(match[2] or match[1]) if match else int(task.name)
        found[own] = int(task.name)
    return found


def counts_its_own(pid: int) -> bool:
    """Whether its numbers are others than ours. Raises OSError when the process is gone."""
    match = _NUMBERS.search(Path(f"/proc/{pid}/status").read_bytes())
    return bool(match and match[2])
