"""How to read the Python frames of each traced process, told to the kernel as soon as it is known.

A process is looked at when it becomes a target, and again, ever less often, while its
interpreter starts or it has none. Until then its calls have native frames only. A fork
needs nothing: the kernel copies what it knows of the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ingero.attach.kernel import KernelSide
from ingero.discover.python_code import LongCode, read_code
from ingero.discover.python_layout import PythonFrames, layout_of
from ingero.discover.python_runtime import RuntimeFinder
from ingero.model import layout
from ingero.model.layout import PythonFlag
from ingero.model.window import NotWatched

FIRST_AGAIN_NS = 20_000_000  # an interpreter is up within some tens of milliseconds
LAST_AGAIN_NS = 30_000_000_000
MAX_LOOKS = 4  # per call: a look takes milliseconds, and the rings fill meanwhile
FRAME_FIELDS = ("frame_back", "frame_code", "frame_at", "frame_mark", "frame_tlbc")
CODE_FIELDS = (
    "object_type",
    "code_first_line",
    "code_name",
    "code_file",
    "code_lines",
    "code_version",
    "code_tlbc",
)


@dataclass(slots=True)
class Look:
    """What was found last, and when to look again; 0: never."""

    frames: PythonFrames | None
    again_ns: int
    pause_ns: int


class Interpreters:
    """Which process's Python frames can be read."""

    def __init__(self, kernel: KernelSide, parent_of: Callable[[int], int | None]) -> None:
        self._kernel = kernel
        self._parent_of = parent_of
        self._finder = RuntimeFinder()
        self._looks: dict[int, Look] = {}
        self._programs: dict[int, int] = {}  # of processes that executed: which of the numbers handed out
        self._executed = 0
        self._news: list[NotWatched] = []

    def version_of(self, pid: int) -> tuple[int, int] | None:
        """By which its line tables are read: (3, 12); None where its frames are not."""
        look = self._looks.get(pid) or self._looks.get(self._parent_of(pid) or 0)
        if look is None or look.frames is None or look.frames.layout is None:
            return None
        major, minor = look.frames.version.split(".")[:2]
        return int(major), int(minor)

    def long_code(self, pid: int, code: int, sign: int) -> LongCode | None:
        """A code object the kernel had no room for."""
        look = self._looks.get(pid) or self._looks.get(self._parent_of(pid) or 0)
        if look is None or look.frames is None or look.frames.layout is None:
            return None
        return read_code(pid, look.frames.layout, code, sign)

    def look(self, live: Iterable[int], now_ns: int) -> None:
        """Look at new processes, and again at those that may be ready by now."""
        due = [pid for pid in live if self._is_due(pid, now_ns)]
        for pid in due[:MAX_LOOKS]:
            try:
                self._look(pid, now_ns)
            except ProcessLookupError:  # it has ended: nothing more to learn
                self._looks[pid] = Look(None, 0, 0)

    def _is_due(self, pid: int, now_ns: int) -> bool:
        look = self._looks.get(pid)
        return look is None or 0 < look.again_ns <= now_ns

    def _look(self, pid: int, now_ns: int) -> None:
        before = self._looks.get(pid)
        pause_ns = min(2 * before.pause_ns, LAST_AGAIN_NS) if before else FIRST_AGAIN_NS
        found = layout_of(pid, self._finder)
        if found is not None and found.layout is not None:
            found.layout["program"] = self._program_of(pid)
        settled = found is not None and not found.later
        self._looks[pid] = Look(found, 0 if settled else now_ns + pause_ns, pause_ns)
        if found is not None and found.layout is not None:
            self._kernel.write_python(pid, _with_spans(found.layout))
        elif found is None or settled:
            self._kernel.write_python(pid, np.zeros((), layout.PYTHON_LAYOUT))
        if found is not None and settled and found.why:
            self._news.append(NotWatched(pid, "frames", f"Python frames cannot be read: {found.why}"))

    def _program_of(self, pid: int) -> int:
        """A child that executed nothing runs what its parent does."""
        return self._programs.get(pid) or self._programs.get(self._parent_of(pid) or 0, 0)

    def forget(self, pids: Iterable[int]) -> None:
        """They ended: the kernel has forgotten what it knew."""
        for pid in pids:
            self._looks.pop(pid, None)
            self._programs.pop(pid, None)

    def forget_program(self, pids: Iterable[int]) -> None:
        """They became other programs, whose code objects may lie where those of the old ones did."""
        for pid in pids:
            self._looks.pop(pid, None)
            self._executed += 1
            self._programs[pid] = self._executed

    def take_news(self) -> list[NotWatched]:
        news, self._news = self._news, []
        return news


def _with_spans(found: np.void) -> np.ndarray[tuple[()], np.dtype[np.void]]:
    """How far a frame and a code object have to be read, for the kernel to do it in one go each."""
    record = np.zeros((), layout.PYTHON_LAYOUT)
    record[()] = found
    if not record["flags"] & (PythonFlag.PYTHON_OWNER | PythonFlag.PYTHON_IS_ENTRY):
        record["frame_mark"] = 0
    record["frame_bytes"] = max(int(record[name]) for name in FRAME_FIELDS) + 8
    record["code_bytes"] = max(int(record[name]) for name in CODE_FIELDS) + 8
    return record
