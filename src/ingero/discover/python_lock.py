"""The interpreter's lock and its collector in a live process, as addresses to look at.

Neither is needed to read frames: what does not fit is left out (0), never guessed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ingero.discover.python_memory import NotThereError, ProcessMemory, pointers
from ingero.discover.python_objects import MisfitError, Reader
from ingero.discover.python_states import Interpreters

TRIES = 20  # who held it last may be gone already
MAX_INTERVAL_US = 3_600_000_000
ENABLED = (1 << 31) - 1  # less: for a moment, while a module is imported
SEARCHED_BYTES = 32768
GENERATIONS_BYTES = 192  # three and the permanent one, each a list that begins as one of itself


@dataclass(frozen=True, slots=True)
class Lock:
    """Addresses; all 0 where the lock was not found."""

    start: int = 0
    end: int = 0
    holder: int = 0  # of the pointer to the thread state that last held it
    held: int = 0  # of the int that is 1 while somebody does


def find_lock(found: Interpreters, runtime: int) -> Lock:
    """The main interpreter's lock: it names a thread state of that interpreter."""
    reader, at = found.reader, found.reader.at
    for _ in range(TRIES):
        with suppress(NotThereError):
            start = runtime + at["runtime_lock"] if "runtime_lock" in at else 0
            start = start or reader.memory.word(found.main + at["interpreter_lock"])
            if _is_lock(found, start):
                return _lock(reader, start)
    return Lock()


def _is_lock(found: Interpreters, start: int) -> bool:
    memory, at = found.reader.memory, found.reader.at
    holder = memory.word(start + at["lock_holder"])
    interval_us = memory.word(start + at["lock_interval"])
    if memory.signed32(start + at["lock_held"]) not in (0, 1) or not 0 < interval_us < MAX_INTERVAL_US:
        return False
    return memory.word(holder + at["state_interpreter"]) == found.main


def _lock(reader: Reader, start: int) -> Lock:
    at = reader.at
    return Lock(start, start + at["lock_bytes"], start + at["lock_holder"], start + at["lock_held"])


def is_enabled(memory: ProcessMemory, lock: Lock) -> bool:
    """Whether a free-threaded build uses its lock for good, as it does once a module asks for it."""
    with suppress(NotThereError):
        return bool(lock.start) and memory.signed32(lock.start) == ENABLED
    return False


def find_collecting(found: Interpreters) -> int:
    """The int that says whether the main interpreter collects; 0 when it is not found.

    Behind it come two lists, of garbage and of callbacks: where they are not, they are looked for.
    """
    reader = found.reader
    known = found.main + reader.at["interpreter_collecting"]
    if _is_collecting(reader, known) or (
        _has_generations(reader, known) and _is_collecting(reader, known, 1)
    ):
        return known
    words = reader.memory.words_up_to(found.main, SEARCHED_BYTES // 8)
    lists = set(pointers(words).tolist())
    places = [found.main + 8 * (index - 1) for index in sorted(lists) if index and index + 1 in lists]
    fits = [place for place in places if _is_collecting(reader, place) and _has_generations(reader, place)]
    return fits[0] if len(fits) == 1 else 0


def _is_collecting(reader: Reader, address: int, missing: int = 0) -> bool:
    """Some of the lists may be missing: 3.9 makes one when the collector's module is imported."""
    memory = reader.memory
    try:
        if memory.signed32(address) not in (0, 1):
            return False
        lists = [each for each in (memory.word(address + 8), memory.word(address + 16)) if each]
        for each in lists:
            reader.expect(each, "list")
    except (NotThereError, MisfitError):
        return False
    return len(lists) >= 2 - missing


def _has_generations(reader: Reader, address: int) -> bool:
    """Whether pointers to their own surroundings come before it."""
    with suppress(NotThereError):
        start = address - GENERATIONS_BYTES
        words = reader.memory.words_up_to(start, GENERATIONS_BYTES // 8)
        return bool(((words >= np.uint64(start)) & (words < np.uint64(address))).any())
    return False
