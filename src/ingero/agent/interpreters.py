"""The Python interpreters of the traced processes: how to read their frames, where their lock is.

A process is looked at when it becomes a target, and again, ever less often, while its
interpreter starts or it has none. How its frames are read is told to the kernel as soon
as it is known; until then its calls have native frames only. A fork needs nothing: the
kernel copies what it knows of the parent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ingero.agent.library_files import LibraryRoom
from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.attach.kernel import KernelSide
from ingero.attach.session import File, Planner, Session
from ingero.attach.shapes import Shape
from ingero.discover.libraries import Library
from ingero.discover.python_layout import PythonFrames
from ingero.discover.python_objects import LongCode
from ingero.discover.python_runtime import Gil, Runtime, lock_of
from ingero.discover.python_threads import own_numbers
from ingero.errors import AttachError
from ingero.model import layout
from ingero.model.layout import PythonFlag
from ingero.model.window import Records, Unwatchable

FIRST_AGAIN_NS = 20_000_000  # an interpreter is up within some tens of milliseconds
LAST_AGAIN_NS = 30_000_000_000
STARTING_NS = 640_000_000  # until the pauses are as long, what does not fit may be an interpreter that starts
MAX_PROGRAMS = 4096  # every process of the machine executes something; only targets are told to end
MOST_BYTES = (1 << 16) - 1  # as the record holds it
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
class InterpreterLook:
    """What was found last, and when to look again; 0: never."""

    gil: Gil | None = None  # None: no Python runs in it
    frames: PythonFrames | None = None
    again_ns: int = 0
    pause_ns: int = 0
    counts_its_own: bool = False  # its threads have other numbers for it than for us


class Interpreters:
    """Which process runs Python, and how it is read."""

    def __init__(
        self,
        kernel: KernelSide,
        parent_of: Callable[[int], int | None],
        with_frames: bool,
        readers: Asking,
    ) -> None:
        self._readers = readers
        self._kernel = kernel
        self._parent_of = parent_of
        self._with_frames = with_frames
        self._looks: dict[int, InterpreterLook] = {}
        self._programs: dict[int, int] = {}  # of processes that executed: which of the numbers handed out
        self._executed = 0
        self._news: list[Unwatchable] = []
        self._found: list[tuple[int, Library]] = []

    # --- what is known ---------------------------------------------------------------

    def version_of(self, pid: int) -> tuple[int, int] | None:
        """By which its line tables are read: (3, 12); None where its frames are not."""
        frames = self._frames_of(pid)
        if frames is None or frames.layout is None:
            return None
        found = re.match(r"(\d{1,4})\.(\d{1,4})", frames.version, re.ASCII)
        return (int(found[1]), int(found[2])) if found else None

    def long_code(self, pid: int, code: int, sign: int) -> LongCode | None:
        """A code object the kernel had no room for."""
        frames = self._frames_of(pid)
        if frames is None or frames.layout is None:
            return None
        try:
            return self._readers.ask(Reading.long_code, pid, frames.layout, code, sign)
        except (UnreadError, ProcessLookupError):
            return None

    def _frames_of(self, pid: int) -> PythonFrames | None:
        look = self._looks.get(pid) or self._looks.get(self._parent_of(pid) or 0)
        return look.frames if look else None

    def files(self) -> set[tuple[int, int]]:
        """Interpreters in use."""
        gils = (look.gil for look in self._looks.values())
        return {gil.library.file for gil in gils if gil and gil.library}

    def locks(self) -> dict[int, tuple[int, int]]:
        """By process; an empty range where no Python runs. Left out: where it cannot be told."""
        return {
            pid: (look.gil.start, look.gil.end) if look.gil else (0, 0)
            for pid, look in self._looks.items()
            if look.gil is None or not look.gil.why
        }

    def number_holders(self, waits: Records) -> None:
        """The interpreter says who has its lock by the number the thread has for it: put ours."""
        for pid in np.unique(waits["h"]["pid"][waits["holder_tid"] > 0]).tolist():
            look = self._looks.get(pid)
            if look is None or not look.counts_its_own:
                continue
            numbers = {}
            with suppress(ProcessLookupError):
                numbers = own_numbers(pid)
            mine = waits["h"]["pid"] == pid
            waits["holder_tid"][mine] = [numbers.get(own, 0) for own in waits["holder_tid"][mine].tolist()]

    # --- looking ---------------------------------------------------------------------

    def look(self, live: Iterable[int], now_ns: int) -> None:
        """Look at new processes, and again at those that may be ready by now."""
        due = [pid for pid in live if self._is_due(pid, now_ns)]
        for pid in due[:MAX_LOOKS]:
            try:
                self._look(pid, now_ns)
            except (ProcessLookupError, FileNotFoundError):  # ended: what was seen of it is all there is
                self._looks.setdefault(pid, InterpreterLook()).again_ns = 0
            except UnreadError:  # said by whoever asks; perhaps it can be read later
                self._looks[pid] = InterpreterLook(again_ns=now_ns + LAST_AGAIN_NS, pause_ns=LAST_AGAIN_NS)

    def _is_due(self, pid: int, now_ns: int) -> bool:
        look = self._looks.get(pid)
        return look is None or 0 < look.again_ns <= now_ns

    def _look(self, pid: int, now_ns: int) -> None:
        before = self._looks.get(pid)
        pause_ns = min(2 * before.pause_ns, LAST_AGAIN_NS) if before else FIRST_AGAIN_NS
        seen = self._readers.ask(Reading.python, pid, self._with_frames)
        runtime, frames = seen.runtime, seen.frames
        gil = _lock(runtime, frames) if runtime else None
        starting = frames is not None and frames.misfit and pause_ns < STARTING_NS
        settled = runtime is not None and not (frames and frames.later) and not starting
        again_ns = 0 if settled else now_ns + pause_ns
        if gil and (before is None or before.gil != gil):
            self._tell_lock(pid, gil)
        if frames is not None and frames.layout is not None:
            frames.layout["program"] = self._program_of(pid)
            self._kernel.write_python(pid, _with_spans(frames.layout))
        elif self._with_frames and (runtime is None or settled):
            self._kernel.write_python(pid, np.zeros((), layout.PYTHON_LAYOUT))
        if frames is not None and settled and frames.why:
            self.tell(Unwatchable(pid, "frames", f"Python frames cannot be read: {frames.why}"))
        self._looks[pid] = InterpreterLook(gil, frames, again_ns, pause_ns, seen.counts_its_own)

    def _tell_lock(self, pid: int, gil: Gil) -> None:
        if gil.library:
            self._found.append((pid, gil.library))
        if gil.why:
            self.tell(Unwatchable(pid, "gil", gil.why))

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
            self._programs.pop(pid, None)
            self._programs[pid] = self._executed  # the one that executed last stands last
        for old in list(islice(self._programs, max(0, len(self._programs) - MAX_PROGRAMS))):
            del self._programs[old]

    # --- news ------------------------------------------------------------------------

    def take_found(self) -> list[tuple[int, Library]]:
        """Processes seen to run Python since the last call, with the interpreter's file."""
        found, self._found = self._found, []
        return found

    def tell(self, news: Unwatchable) -> None:
        self._news.append(news)

    def take_news(self) -> list[Unwatchable]:
        news, self._news = self._news, []
        return news


def _lock(runtime: Runtime, frames: PythonFrames | None) -> Gil:
    """The interpreter itself knows best whether it has one; until it was read, its file's name tells."""
    if frames is not None and frames.layout is not None:
        runtime = replace(runtime, free_threaded=not frames.has_lock)
    return lock_of(runtime)


def _with_spans(found: np.void) -> np.ndarray[tuple[()], np.dtype[np.void]]:
    """How far a frame and a code object have to be read, for the kernel to do it in one go each."""
    record = np.zeros((), layout.PYTHON_LAYOUT)
    record[()] = found
    if not record["flags"] & (PythonFlag.PYTHON_OWNER | PythonFlag.PYTHON_IS_ENTRY):
        record["frame_mark"] = 0
    record["frame_bytes"] = min(max(int(record[name]) for name in FRAME_FIELDS) + 8, MOST_BYTES)
    record["code_bytes"] = min(max(int(record[name]) for name in CODE_FIELDS) + 8, MOST_BYTES)
    return record


# Probes on the garbage collectors of the traced processes' interpreters.
#
# Apart from the probes on CUDA libraries: other programs in the kernel, and one file may
# be both an interpreter and a CUDA runtime.


UNUSED_NS = 60_000_000_000
UNSEEN = "garbage collections are not counted, they only show in samples: "


class Collectors:
    """Interpreter files with a probe on their collector; loaded when the first is needed."""

    def __init__(
        self,
        make_shape: Callable[[], Shape],
        without: frozenset[str],
        readers: Asking,
        planner: Planner | None = None,
    ) -> None:
        self._planner = planner
        self._make_shape = make_shape
        self._off = "python" in without
        self._session: Session | None = None
        self._refused = ""
        self._used_ns: dict[File, int] = {}
        self._room = LibraryRoom(readers)

    def prepare(self) -> None:
        """Load it before a job starts: that takes 40 ms, in which nobody would hear what the job loads."""
        if not self._off:
            with suppress(AttachError):  # told when it is wanted
                self._open()

    def attach(self, library: Library) -> str:
        """Why it cannot be watched; empty when it is, or is not wanted."""
        if self._off:
            return ""
        try:
            if self._room.full(library.file, library.path_for_kernel, self._open().files):
                return UNSEEN + "too many interpreters have probes already"
            attached = self._open().attach(
                library.file, library.path_for_kernel, library.path, library.kind, hot_runtime=False
            )
        except AttachError as error:
            return UNSEEN + error.message
        if attached.points:
            return ""
        left_out = [*attached.costly, *attached.refused]
        return UNSEEN + (left_out[0] if left_out else f"{library.path} has no symbol of its collector")

    def _open(self) -> Session:
        if self._session is None:
            if not self._refused:
                try:
                    self._session = Session(self._make_shape(), planner=self._planner)
                    return self._session
                except OSError as error:
                    self._refused = (error.strerror or str(error)).splitlines()[0]
            raise AttachError(f"the kernel refused the probe: {self._refused}")
        return self._session

    def release_unused(self, used: Iterable[File], now_ns: int) -> None:
        """Take the probes off interpreters nobody traced has run for a while."""
        self._used_ns.update(dict.fromkeys(used, now_ns))
        for file in list(self._session.files) if self._session else ():
            if now_ns - self._used_ns.setdefault(file, now_ns) > UNUSED_NS:
                del self._used_ns[file]
                self._session.release(file)  # type: ignore[union-attr]

    def count(self) -> int:
        """Functions probed."""
        return self._session.counts()["python"] if self._session else 0

    def close(self) -> None:
        if self._session:
            self._session.close()
