"""How to read the Python frames of a live process, found out and checked on that process.

The offsets come from the runtime itself (3.13 and later say them) or from the table of
the version. Each is then used: from the list of interpreters to thread states, frames,
code objects, their names and line tables. What does not lead to these is not handed on,
so that a layout holds for this process whatever was patched; a process that does not
run Python yet is told from one that cannot be read.
"""

from __future__ import annotations

import platform
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingero.discover.process_memory import NotThereError, ProcessMemory, TooMuchError
from ingero.discover.python_objects import MisfitError, ObjectReader, Offsets, PythonCode
from ingero.discover.python_offsets import OFFSETS, STATED
from ingero.discover.python_runtime import Runtime, RuntimeFinder
from ingero.discover.python_states import (
    Lock,
    PythonThreadState,
    find_collecting,
    find_interpreters,
    find_lock,
    is_enabled,
)
from ingero.discover.python_threads import Slot, find_slot, find_tid, own_numbers
from ingero.model.layout import PYTHON_LAYOUT, PythonFlag

COOKIE = b"xdebugpy"
STATED_BYTES = 1024
MAX_OFFSET = 1 << 16  # what the record can hold
TRIES = 5  # a list of threads may change while it is read
TRY_AGAIN_S = 0.001
FRAME_TRIES = 40  # a thread that runs moves on while its frames are read
MAX_CHECKED_FRAMES = 64

FLAGS = {
    9: PythonFlag.PYTHON_EACH_ENTERS | PythonFlag.PYTHON_LASTI,
    10: PythonFlag.PYTHON_EACH_ENTERS | PythonFlag.PYTHON_LASTI,
    11: PythonFlag.PYTHON_CFRAME | PythonFlag.PYTHON_IS_ENTRY,
    12: PythonFlag.PYTHON_CFRAME | PythonFlag.PYTHON_OWNER | PythonFlag.PYTHON_VERSIONED,
    13: PythonFlag.PYTHON_OWNER | PythonFlag.PYTHON_VERSIONED,
    14: PythonFlag.PYTHON_OWNER | PythonFlag.PYTHON_VERSIONED | PythonFlag.PYTHON_TAGGED,
}


@dataclass(frozen=True, slots=True, eq=False)
class PythonFrames:
    """A record of PYTHON_LAYOUT, or why there is none; `later`: not yet, rather than not at all."""

    layout: np.void | None = None
    version: str = ""
    free_threaded: bool = False
    route: str = ""
    has_lock: bool = True  # a free-threaded build may run with it
    why: str = ""
    later: bool = False
    misfit: bool = False  # nor, perhaps, in a moment: it may have been looked at while it starts


class NotYetError(Exception):
    """The interpreter is starting, or runs no Python at the moment."""


def layout_of(pid: int, finder: RuntimeFinder | None = None) -> PythonFrames | None:
    """None: no Python runs in this process. Raises ProcessLookupError when it is gone."""
    runtime = (finder or RuntimeFinder()).runtime_of(pid)
    return frames_of(pid, runtime) if runtime else None


def frames_of(pid: int, runtime: Runtime) -> PythonFrames:
    """How to read the frames of an interpreter that was found."""
    version, free_threaded = runtime.version, runtime.free_threaded
    why = _unknown(runtime)
    if why:
        return PythonFrames(None, version, free_threaded, why=why)
    for attempt in range(TRIES):
        try:
            with ProcessMemory(pid) as memory:
                return _read(pid, memory, runtime)
        except PermissionError:
            return PythonFrames(None, version, free_threaded, why="no permission to read its memory")
        except TooMuchError:
            return PythonFrames(None, version, free_threaded, why="what it has in memory is no interpreter")
        except NotYetError as error:
            last = PythonFrames(None, version, free_threaded, why=str(error), later=True)
        except (MisfitError, NotThereError) as error:
            last = PythonFrames(
                None, version, free_threaded, why=f"not as in Python {version}: {error}", misfit=True
            )
        time.sleep(TRY_AGAIN_S * attempt)
    return last


def _unknown(runtime: Runtime) -> str:
    """Why nothing is tried; empty when it can be."""
    if platform.machine() != "x86_64":
        return f"thread states are not found on {platform.machine()}"
    if not runtime.why and runtime.minor not in FLAGS:
        version = runtime.version or "of unknown version"
        return f"Python {version}: only 3.{min(FLAGS)} to 3.{max(FLAGS)} are known"
    return runtime.why


def _read(pid: int, memory: ProcessMemory, runtime: Runtime) -> PythonFrames:
    assert runtime.minor is not None
    at, free_threaded = _offsets(memory, runtime, runtime.minor)
    found = find_interpreters(ObjectReader(memory, at), runtime.start, runtime.end)
    if found is None:
        raise NotYetError("the interpreter has not started yet")
    alive = own_numbers(pid)
    slot = find_slot(memory, found.states, alive, _key(memory, at, runtime.start))
    if slot is None:
        raise MisfitError("no thread has a pointer to its thread state")
    code = _check_frames(found.reader, found.states)
    record = _record(found.reader.at, runtime.minor, slot)
    record["code_type"], record["text_type"] = code.type, code.text_type
    record["bytes_type"] = code.bytes_type
    if not any(state.native_id in alive for state in found.states):
        record["state_native_id"] = 0
        record["thread_tid"] = find_tid(memory, found.states, alive)
    record["collecting"] = find_collecting(found)
    lock = find_lock(found, runtime.start)
    has_lock = not free_threaded or is_enabled(memory, lock)
    if has_lock:
        _add_lock(record, lock, runtime)
    route = f"{slot}, its interpreters searched for" if found.searched else str(slot)
    return PythonFrames(record[0], runtime.version, free_threaded, route, has_lock)


def _offsets(memory: ProcessMemory, runtime: Runtime, minor: int) -> tuple[Offsets, bool]:
    """The version's offsets, those the runtime states before those of the table; whether free-threaded."""
    raw = memory.read(runtime.start, min(STATED_BYTES, runtime.end - runtime.start)).ljust(
        STATED_BYTES, b"\0"
    )
    cookie, version = struct.unpack_from("<8sQ", raw)
    positions = STATED.get(minor, {})
    if not positions or cookie != COOKIE or version >> 16 != 3 << 8 | minor:
        free_threaded = runtime.free_threaded and (minor, True) in OFFSETS
        return OFFSETS[minor, free_threaded], free_threaded
    stated = {name: int(struct.unpack_from("<Q", raw, at)[0]) for name, at in positions.items()}
    free_threaded = bool(stated.pop("free_threaded"))
    stated["interpreter_collecting"] = stated.pop("interpreter_gc") + stated.pop("gc_collecting")
    known = OFFSETS[minor, free_threaded]
    usable = {name: value for name, value in stated.items() if name in known and value < MAX_OFFSET}
    return {**known, **usable}, free_threaded


def _key(memory: ProcessMemory, at: Offsets, runtime: int) -> int | None:
    """Which pthread key it should be, where this build has it in the usual place."""
    made, key = struct.unpack("<iI", memory.read(runtime + at["runtime_key"], 8))
    return key if made == 1 and key < 1024 else None


def _check_frames(reader: ObjectReader, states: Iterable[PythonThreadState]) -> PythonCode:
    """Some thread's frames must all be frames; the outermost code object of that thread."""
    shallow, last = False, None
    for _ in range(FRAME_TRIES):
        for state in reversed(tuple(states)):  # the oldest first: the main thread
            try:
                codes, linked = _codes(reader, state)
            except (MisfitError, NotThereError) as error:
                last = error
                continue
            if linked:
                return codes[-1]
            shallow |= bool(codes)
        if last is None:
            break
    if last is None or shallow:
        raise NotYetError("too few frames to check by" if shallow else "no thread runs Python code yet")
    raise MisfitError(str(last))


def _codes(reader: ObjectReader, state: PythonThreadState) -> tuple[list[PythonCode], bool]:
    """The code objects of a thread's frames, innermost first, each checked with the frame's place in it.

    And whether they show how frames are linked: one frame alone may as well be a link not found.
    """
    found: list[PythonCode] = []
    frames = 0
    for frame, address in reader.frames(reader.frame_of(state.address)):
        frames += 1
        if address and len(found) < MAX_CHECKED_FRAMES:
            found.append(reader.code(address))
            reader.instruction(frame, address)
    named = any(code.name and code.file and (code.name + code.file).isprintable() for code in found)
    if found and (not named or len({code.type for code in found}) > 1):
        raise MisfitError("frames without names")
    return found, bool(found) and (frames > 1 or found[0].name == "<module>")


def _record(at: Offsets, minor: int, slot: Slot) -> NDArray[np.void]:
    record = np.zeros(1, PYTHON_LAYOUT)
    for name in set(PYTHON_LAYOUT.names or ()) & set(at) - {"lock_holder", "lock_held"}:
        record[name] = at[name]
    flags = FLAGS[minor]
    if "code_tlbc" in at:
        flags |= PythonFlag.PYTHON_THREAD_CODE
    if slot.block is not None:
        flags |= PythonFlag.PYTHON_KEY_BLOCK
        record["key_block"] = slot.block
    record["flags"], record["thread_state"] = flags, slot.at
    record["minor"] = minor
    return record


def _add_lock(record: NDArray[np.void], lock: Lock, runtime: Runtime) -> None:
    """The lock itself where it was found, else all that it may lie in."""
    record["lock"], record["lock_end"] = lock.start or runtime.start, lock.end or runtime.end
    record["lock_holder"], record["lock_held"] = lock.holder, lock.held
