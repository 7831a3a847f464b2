"""Stack ids of the kernel become stacks that can be read, each of them once.

Native addresses are named when the record comes, while the process is most likely still
there; the Python part when the id is first asked for, because the code objects may come
behind the stack. A code object that is missing shows as [unknown] and is counted, and
the stack is made anew once more code objects have come. Nothing here is per event: calls
carry ids, and a window has few different ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingero.capture.code_objects import PYTHON_ENTRY, CodeKey, CodeObjects, LineAt
from ingero.model.layout import FramesKept, PythonState
from ingero.model.stack import Frame, NativeFrame, PythonFrame, ResolvedStack, lookups, note, resolved
from ingero.model.window import Records

# Frames for addresses of a process (pid, its start), None where there is no code.
FramesAt = Callable[[int, NDArray[np.uint64], int], Sequence[NativeFrame | None]]
PYTHON_INNER = int(FramesKept.PYTHON_INNER)  # behind these the outermost frames turn round in their place
PYTHON_FRAMES = int(FramesKept.PYTHON_FRAMES)
NATIVE_FRAMES = int(FramesKept.NATIVE_FRAMES)
MAX_WAITING = 16384  # stacks not yet asked for: some 3 KB each
MAX_KNOWN = 1 << 16
MAX_SHOWN = 8192  # hashes: whoever reads them remembers as many stacks, and is told again of others
UNKNOWN = Frame("python", "[unknown]")
Value = TypeVar("Value")
_STATE_NAMES = {int(state): state.name.removeprefix("PYTHON_").lower() for state in PythonState}
_STATE_NOTES = {
    "unreadable": note("Python frames not readable from here on"),
    "corrupt": note("Python frames not readable: no chain of frames"),
    "not_yet": note("Python frames not readable yet: the process was just found"),
}


@dataclass(slots=True)
class _WaitingStack:
    """A stack as it came, its native part named."""

    record: np.void
    native: list[NativeFrame]

    @property
    def pid(self) -> int:
        return int(self.record["h"]["pid"])


class _Known(NamedTuple):
    hash: int
    pid: int


class StackBook:
    """Every stack met; asked once a window."""

    def __init__(self, frames_at: FramesAt, line_at: LineAt) -> None:
        self.code = CodeObjects()
        self.counts: Counter[str] = Counter()  # unknown_frames, stacks_cut, stacks_lost, python_read, ...
        self._frames_at = frames_at
        self._line_at = line_at
        self._waiting: dict[int, _WaitingStack] = {}
        self._known: dict[int, _Known] = {}  # by the kernel's id
        self._incomplete: set[int] = set()  # of those waiting: made with [unknown] in them
        self._shown: dict[int, None] = {}  # hashes already handed out
        self._new: list[ResolvedStack] = []

    def add(self, stacks: Records, codes: Records, long_codes: Records) -> None:
        """What was drained, in any order; the arrays are not kept."""
        news = self.code.add(codes) + self.code.add(long_codes)
        if news:
            self.retry()
        ids = stacks["id"].tolist()
        fresh = [row for row, number in enumerate(ids) if number and number not in self._known]
        self._name_native(stacks[fresh])

    def retry(self) -> None:
        """Code objects have come: stacks that lacked some are made again when asked for."""
        for number in self._incomplete:
            self._known.pop(number, None)
        self._incomplete.clear()

    def _name_native(self, stacks: Records) -> None:
        """All stacks of a process at once."""
        header = stacks["h"]
        processes = np.unique(np.stack([header["pid"].astype(np.uint64), header["start_ns"]], 1), axis=0)
        for pid, start_ns in processes.tolist():
            mine = stacks[(header["pid"] == pid) & (header["start_ns"] == start_ns)]
            counts = np.minimum(mine["native_count"], NATIVE_FRAMES)
            inside = np.arange(NATIVE_FRAMES) < counts[:, None]
            wanted = lookups(mine["native"])
            addresses = np.unique(wanted[inside])
            named = dict(zip(addresses.tolist(), self._frames_at(pid, addresses, start_ns), strict=True))
            for record, looked, count in zip(mine, wanted.tolist(), counts.tolist(), strict=True):
                self._wait(record, list(_until_none(named[address] for address in looked[:count])))

    def _wait(self, record: np.void, native: list[NativeFrame]) -> None:
        self._waiting[int(record["id"])] = _WaitingStack(record.copy(), native)
        if record["uncopied"]:
            pid, frames = int(record["h"]["pid"]), record["python"][: int(record["python_count"])]
            keys = (CodeKey(pid, code, sign) for code, _, sign in frames.tolist())
            self.code.want(keys, int(record["h"]["start_ns"]))
        if len(self._waiting) > MAX_WAITING:
            number = next(iter(self._waiting))
            del self._waiting[number]
            self._incomplete.discard(number)
            self.counts["stacks_not_asked_for"] += 1

    def resolve(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The hash of each id's stack; 0: none, or its record was lost."""
        unique, where = np.unique(ids, return_inverse=True)
        hashes = np.array([self._hash_of(number) for number in unique.tolist()], np.int64)
        return hashes[where] if len(hashes) else hashes

    def _hash_of(self, number: int) -> int:
        known = self._known.get(number)
        if known is not None or not number:
            return known.hash if known else 0
        waiting = self._waiting.get(number)
        if waiting is None:
            self.counts["stacks_lost"] += 1
            return 0
        stack, unknown = self._make(waiting)
        if unknown:
            self._incomplete.add(number)
        else:
            del self._waiting[number]
        _bounded(self._known, number, _Known(stack.hash, waiting.pid), MAX_KNOWN)
        if stack.hash not in self._shown:
            _bounded(self._shown, stack.hash, None, MAX_SHOWN)
            self._new.append(stack)
        return stack.hash

    def forget(self, pids: Set[int]) -> None:
        """Processes that have ended, when everything that cites their stacks has been asked for."""
        held = {number for number, each in self._waiting.items() if each.pid in pids}
        held.update(number for number, each in self._known.items() if each.pid in pids)
        for number in held:
            self._waiting.pop(number, None)
            self._known.pop(number, None)
        self._incomplete.difference_update(held)
        self.code.forget(pids)

    def take_new(self) -> list[ResolvedStack]:
        """Stacks made since the last call, to be stored."""
        new, self._new = self._new, []
        return new

    def _make(self, waiting: _WaitingStack) -> tuple[ResolvedStack, int]:
        python = list(self._python(waiting.record))
        unknown = sum(each.frame is UNKNOWN for each in python)
        self.counts["stacks"] += 1
        self.counts["unknown_frames"] += unknown
        return resolved(interleave(waiting.native, python)), unknown

    def _python(self, record: np.void) -> Iterator[PythonFrame]:
        depth, count = int(record["python_depth"]), min(int(record["python_count"]), PYTHON_FRAMES)
        state = _STATE_NAMES.get(int(record["python_state"]), "other")
        self.counts[f"python_{state}"] += 1
        frames = record["python"][_order(depth, count)]
        inner = PYTHON_INNER if depth > count else count
        yield from self._frames(record, frames[:inner])
        if depth > count:
            self.counts["stacks_cut"] += 1
            yield PythonFrame(note(f"{depth - count} frames cut"), False)
        yield from self._frames(record, frames[inner:])
        if state in _STATE_NOTES:
            yield PythonFrame(_STATE_NOTES[state], False)
        elif record["cut"]:
            self.counts["stacks_cut"] += 1
            yield PythonFrame(note("deeper frames not read"), False)

    def _frames(self, record: np.void, frames: Records) -> Iterator[PythonFrame]:
        pid, start_ns = int(record["h"]["pid"]), int(record["h"]["start_ns"])
        for code, at, sign in frames.tolist():
            known = self.code.get(CodeKey(pid, code, sign), start_ns)
            frame = known.frame_at(at, self._line_at) if known else UNKNOWN
            yield PythonFrame(frame, bool(at & PYTHON_ENTRY))


def _order(depth: int, count: int) -> NDArray[np.int64]:
    """Entries innermost first: the outer ones were written round and round."""
    rows = np.arange(count)
    outer = count - PYTHON_INNER
    if depth > count and outer > 0:
        rows[PYTHON_INNER:] = PYTHON_INNER + (np.arange(outer) + depth - PYTHON_INNER) % outer
    return rows


def _until_none(frames: Iterator[NativeFrame | None]) -> Iterator[NativeFrame]:
    for frame in frames:
        if frame is None:
            return
        yield frame


def _bounded(known: dict[int, Value], key: int, value: Value, most: int) -> None:
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]


# Native and Python frames of one stack put in order, innermost first.
#
# The C function that evaluates Python stands in the native stack once for every time the
# interpreter was entered; the Python frames it was running are a group that ends with a
# frame marked as entered. Each evaluator is replaced by its group, the interpreter's other
# functions are left out, and frames of other modules stay where they are.
#
# Without frame pointers the native chain ends early. Then the rest of the Python frames
# follows behind a note that names the module where it ended.


# The evaluator, split by the compiler or not; from 3.14 it may be a function for each instruction.
_EVALUATOR = re.compile(r"_PyEval_EvalFrameDefault(\.\w+)*|_TAIL_CALL_\w+(\.\w+)*")
# What calls it; counts where the evaluator itself became part of it.
_CALLER = re.compile(r"(_PyEval_EvalFrame|PyEval_EvalFrameEx|_PyEval_Vector)(\.\w+)*")
# A native stack that has one of these outermost, or next to it, is whole.
_FIRST = re.compile(
    r"main|_start|__libc_start_main|__libc_start_call_main|start_thread|clone3?|__clone3?|thread_start"
)


def interleave(native: Sequence[NativeFrame], python: Sequence[PythonFrame]) -> list[Frame]:
    if not any(each.frame.kind == "python" for each in python):
        return [*_alone(native), *(each.frame for each in python)]
    groups = list(_groups(python))
    evaluators = _evaluators(native)
    interpreters = {native[at].module for at in evaluators}
    found: list[Frame] = []
    for at, frame in enumerate(native):
        if at in evaluators:
            found += groups.pop(0) if groups else ()
        elif frame.module not in interpreters:
            found.append(_shown(frame))
    if groups:
        found.append(_broken(native))
    return found + [frame for group in groups for frame in group]


def _evaluators(native: Sequence[NativeFrame]) -> set[int]:
    for pattern in (_EVALUATOR, _CALLER):
        found = {at for at, frame in enumerate(native) if pattern.fullmatch(frame.function)}
        if found:
            return found
    return set()


def _groups(python: Sequence[PythonFrame]) -> Iterator[list[Frame]]:
    """What each entry into the interpreter ran. Behind frames that are cut out nothing can be matched
    with native frames any more: all of it is one group."""
    group: list[Frame] = []
    cut = False
    for frame, entry in python:
        group.append(frame)
        cut = cut or frame.kind == "note"
        if entry and not cut:
            yield group
            group = []
    if group:
        yield group


def _alone(native: Sequence[NativeFrame]) -> list[Frame]:
    whole = any(_FIRST.fullmatch(frame.function) for frame in native[-2:])
    return [_shown(frame) for frame in native] + ([] if whole or not native else [_broken(native)])


def _broken(native: Sequence[NativeFrame]) -> Frame:
    where = f": {native[-1].module.rpartition('/')[2]}" if native else ""
    return note(f"native frames not readable{where}")


def _shown(frame: NativeFrame) -> Frame:
    return Frame("native", frame.function, module=frame.module)
