"""The code objects of traced Python processes, as the kernel copied them when it met each.

Texts are what the process had in its memory: of any length, in any of the three widths
that Python stores text in, and not to be trusted. Kept until their process ends and up to a limit,
oldest first out; the kernel sends an object again after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ingero.model.layout import Missing
from ingero.model.stack import Frame
from ingero.model.window import Records
from ingero.units import visible

Version = tuple[int, int]  # of Python: (3, 12)
LineAt = Callable[[Version, bytes, int, int], int | None]

PYTHON_ENTRY = 0x80000000  # as in wire.h: the interpreter was entered from C for the frame
MAX_BYTES = 64 << 20
MAX_PLACES = 4096  # instructions of one code object remembered as frames
_OBJECT_BYTES = 600  # what one takes besides its texts
_CODECS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


class CodeKey(NamedTuple):
    pid: int
    code: int
    sign: int


class Origin(NamedTuple):
    """The process a code object was met in."""

    start_ns: int  # 0: not told
    version: Version


@dataclass(slots=True)
class CodeObject:
    """What a frame needs to be shown."""

    origin: Origin
    name: str
    file: str
    first_line: int
    table: bytes | None  # None: not copied by the kernel, and gone before it could be read
    frames: dict[int, Frame] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return _OBJECT_BYTES + 2 * len(self.name) + 2 * len(self.file) + len(self.table or b"")

    def frame_at(self, at: int, line_at: LineAt) -> Frame:
        at &= ~PYTHON_ENTRY
        frame = self.frames.get(at)
        if frame is None:
            table = self.table
            line = None if table is None else line_at(self.origin.version, table, self.first_line, at)
            frame = Frame("python", self.name, self.file, line)
            if len(self.frames) >= MAX_PLACES:
                self.frames.clear()
            self.frames[at] = frame
        return frame


class CodeObjects:
    """Code objects of every process."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: dict[CodeKey, CodeObject] = {}
        self._bytes = 0
        self._missing: dict[CodeKey, int] = {}  # came without texts, or not at all: when its process began

    def get(self, key: CodeKey, process_start_ns: int) -> CodeObject | None:
        """The object, unless it is known to be another process's."""
        found = self._held.get(key)
        if found and found.origin.start_ns and process_start_ns != found.origin.start_ns:
            return None
        return found

    def add(self, records: Records) -> int:
        """Records of either length; how many were news."""
        known = len(self._held)
        heads = records["head"]
        keys = (heads["h"]["pid"], heads["code"], heads["sign"])
        columns = (*keys, heads["h"]["start_ns"], heads["minor"], heads["missing"])
        for row, (*numbers, start_ns, minor, missing) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            key, origin = CodeKey(*numbers), Origin(start_ns, (3, minor))
            held = self.get(key, start_ns)
            if missing and (held is None or held.table is None):
                self._missing.setdefault(key, start_ns)
            if held is None and missing != Missing.MISSING_TEXTS:
                self._decode(key, origin, records[row])
        return len(self._held) - known

    def _decode(self, key: CodeKey, origin: Origin, record: np.void) -> None:
        head = record["head"]
        data = record["data"].tobytes()
        name_end = int(head["name"]["bytes"])
        file_end = name_end + int(head["file"]["bytes"])
        table_end = file_end + int(head["lines_bytes"])
        texts = _text(data[:name_end], head["name"]), _text(data[name_end:file_end], head["file"])
        if table_end <= len(data) and texts[0] is not None and texts[1] is not None:
            table = None if head["missing"] else data[file_end:table_end]
            self.learn(key, origin, texts[0], texts[1], int(head["first_line"]), table)

    def learn(
        self, key: CodeKey, origin: Origin, name: str, file: str, first_line: int, table: bytes | None
    ) -> None:
        """An object that came whole, or that was read out of the process because it did not."""
        made = CodeObject(origin, visible(name), visible(file), first_line, table)
        self._drop(key)
        self._held[key] = made
        self._bytes += made.bytes
        while self._bytes > self._max_bytes and len(self._held) > 1:
            self._drop(next(iter(self._held)))

    def _drop(self, key: CodeKey) -> None:
        gone = self._held.pop(key, None)
        self._bytes -= gone.bytes if gone else 0

    def want(self, keys: Iterable[CodeKey], start_ns: int) -> None:
        """A stack has them: those that did not come have to be read out of the process."""
        for key in keys:
            if self.get(key, start_ns) is None:
                self._missing.setdefault(key, start_ns)

    def take_missing(self) -> Iterator[tuple[CodeKey, int]]:
        """Objects to be read, and when their process began; each is told once."""
        missing, self._missing = self._missing, {}
        yield from missing.items()

    def forget(self, pids: Set[int]) -> None:
        """Processes that have ended."""
        for key in [key for key in self._held if key.pid in pids]:
            self._drop(key)
        for key in [key for key in self._missing if key.pid in pids]:
            del self._missing[key]

    def __len__(self) -> int:
        return len(self._held)


def _text(raw: bytes, text: np.void) -> str | None:
    codec = _CODECS.get(int(text["unit"]))
    return raw.decode(codec, "replace") if codec else None
