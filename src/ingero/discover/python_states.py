"""The interpreters of a process and their thread states: where they are, found or searched for.

Distributions patch CPython, and a few bytes more in a structure move what comes after.
Where the known offsets lead nowhere, the words of `_PyRuntime` and of the interpreter are
tried: a pointer to an interpreter that has a pointer to a thread state that points back
is not met by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ingero.discover.process_memory import NotThereError, ProcessMemory, pointers
from ingero.discover.python_objects import MisfitError, ObjectReader

TRIES = 5  # a list may change while it is read
MAX_INTERPRETERS = 256
MAX_THREADS = 8192
SEARCHED_RUNTIME_BYTES = 4096  # the list of interpreters is among the first fields, 3.9 to 3.14
SEARCHED_INTERPRETER_BYTES = 16384


@dataclass(frozen=True, slots=True)
class PythonThreadState:
    """A thread state."""

    address: int
    thread_id: int  # pthread_self; 0: not bound to a thread yet
    native_id: int  # 0: not known


@dataclass(frozen=True, slots=True)
class ListedInterpreters:
    """What the runtime lists; the main interpreter is the oldest, hence the last."""

    reader: ObjectReader  # with the offsets that fit
    main: int
    states: tuple[PythonThreadState, ...]
    searched: bool = False


def find_interpreters(reader: ObjectReader, start: int, end: int) -> ListedInterpreters | None:
    """None: there is none yet."""
    head = 0
    for _ in range(TRIES):
        with suppress(MisfitError, NotThereError):
            head = reader.memory.word(start + reader.at["runtime_interpreters"])
            if not head:
                break
            return _listed(reader, head)
    found = next(_searched(reader, start, end), None)
    if found is None and head:
        raise MisfitError("the list of interpreters is not where this version has it, nor near")
    return found


def _listed(reader: ObjectReader, head: int) -> ListedInterpreters:
    chain, interpreter = [head], head
    while interpreter := reader.memory.word(interpreter + reader.at["interpreter_next"]):
        if interpreter in chain or len(chain) >= MAX_INTERPRETERS:
            raise MisfitError("a list of interpreters that does not end")
        chain.append(interpreter)
    states = [state for each in chain for state in _states(reader, each)]
    return ListedInterpreters(reader, chain[-1], tuple(states))


def _states(reader: ObjectReader, interpreter: int) -> Iterator[PythonThreadState]:
    """The thread states of an interpreter: at least one."""
    memory, at = reader.memory, reader.at
    address = memory.word(interpreter + at["interpreter_threads"])
    if not address:
        raise MisfitError(f"no thread states at {interpreter:#x}")
    seen: set[int] = set()
    while address:
        looped = address in seen or len(seen) >= MAX_THREADS
        if looped or address % 8 or memory.word(address + at["state_interpreter"]) != interpreter:
            raise MisfitError(f"no thread state at {address:#x}")
        seen.add(address)
        native_id = memory.word(address + at["state_native_id"]) if "state_native_id" in at else 0
        yield PythonThreadState(address, memory.word(address + at["state_thread_id"]), native_id)
        address = memory.word(address + at["state_next"])


def _searched(reader: ObjectReader, start: int, end: int) -> Iterator[ListedInterpreters]:
    """Every pointer of the runtime, taken for an interpreter; first with the known place of its threads."""
    words = reader.memory.words_up_to(start, min(end - start, SEARCHED_RUNTIME_BYTES) // 8)
    places = {int(words[index]): int(index) * 8 for index in reversed(pointers(words))}
    for address, place in sorted(places.items(), key=lambda item: item[1]):
        found = _tried(reader, address, place, reader.at["interpreter_threads"])
        if found:
            yield found
    for address, place in sorted(places.items(), key=lambda item: (not start <= item[0] < end, item[1])):
        for threads in _thread_places(reader, address):
            found = _tried(reader, address, place, threads)
            if found:
                yield found


def _thread_places(reader: ObjectReader, interpreter: int) -> Iterator[int]:
    """Where in what may be an interpreter a pointer to something stands that points back."""
    try:
        words = reader.memory.words_up_to(interpreter, SEARCHED_INTERPRETER_BYTES // 8)
    except NotThereError:
        return
    for index in pointers(words):
        try:
            back = reader.memory.word(int(words[index]) + reader.at["state_interpreter"])
        except NotThereError:
            continue
        if back == interpreter:
            yield int(index) * 8


def _tried(reader: ObjectReader, interpreter: int, place: int, threads: int) -> ListedInterpreters | None:
    shift = threads - reader.at["interpreter_threads"]
    nexts = dict.fromkeys((reader.at["interpreter_next"], max(reader.at["interpreter_next"] + shift, 0)))
    for next_at in nexts:
        moved = {
            "runtime_interpreters": place,
            "interpreter_threads": threads,
            "interpreter_next": next_at,
        }
        fitting = ObjectReader(reader.memory, {**reader.at, **moved})
        try:
            found = replace(_listed(fitting, interpreter), searched=fitting.at != reader.at)
            if any(_is_plausible(fitting, state) for state in found.states):
                return found
        except (MisfitError, NotThereError):
            continue
    return None


def _is_plausible(reader: ObjectReader, state: PythonThreadState) -> bool:
    """A thread id is the address of the thread's own data, which begins with its address."""
    try:
        return bool(state.thread_id) and reader.memory.word(state.thread_id) == state.thread_id
    except NotThereError:
        return False


# The interpreter's lock and its collector in a live process, as addresses to look at.
#
# Neither is needed to read frames: what does not fit is left out (0), never guessed.


LOCK_TRIES = 20  # who held it last may be gone already
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


def find_lock(found: ListedInterpreters, runtime: int) -> Lock:
    """The main interpreter's lock: it names a thread state of that interpreter."""
    reader, at = found.reader, found.reader.at
    for _ in range(LOCK_TRIES):
        with suppress(NotThereError):
            start = runtime + at["runtime_lock"] if "runtime_lock" in at else 0
            start = start or reader.memory.word(found.main + at["interpreter_lock"])
            if _is_lock(found, start):
                return _lock(reader, start)
    return Lock()


def _is_lock(found: ListedInterpreters, start: int) -> bool:
    memory, at = found.reader.memory, found.reader.at
    holder = memory.word(start + at["lock_holder"])
    interval_us = memory.word(start + at["lock_interval"])
    if memory.signed32(start + at["lock_held"]) not in (0, 1) or not 0 < interval_us < MAX_INTERVAL_US:
        return False
    return memory.word(holder + at["state_interpreter"]) == found.main


def _lock(reader: ObjectReader, start: int) -> Lock:
    at = reader.at
    return Lock(start, start + at["lock_bytes"], start + at["lock_holder"], start + at["lock_held"])


def is_enabled(memory: ProcessMemory, lock: Lock) -> bool:
    """Whether a free-threaded build uses its lock for good, as it does once a module asks for it."""
    with suppress(NotThereError):
        return bool(lock.start) and memory.signed32(lock.start) == ENABLED
    return False


def find_collecting(found: ListedInterpreters) -> int:
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


def _is_collecting(reader: ObjectReader, address: int, missing: int = 0) -> bool:
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


def _has_generations(reader: ObjectReader, address: int) -> bool:
    """Whether pointers to their own surroundings come before it."""
    with suppress(NotThereError):
        start = address - GENERATIONS_BYTES
        words = reader.memory.words_up_to(start, GENERATIONS_BYTES // 8)
        return bool(((words >= np.uint64(start)) & (words < np.uint64(address))).any())
    return False
