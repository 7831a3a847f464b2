"""The code of traced Python processes: its objects, as the kernel copied them when it met each, and the
source line of an instruction in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ingero.model.layout import Missing, PythonAt
from ingero.model.stack import Frame
from ingero.model.window import Records
from ingero.units import visible

# The code objects of traced Python processes, as the kernel copied them when it met each.
#
# Texts are what the process had in its memory: of any length, in any of the three widths
# that Python stores text in, and not to be trusted. Kept until their process ends and up to a limit,
# oldest first out; the kernel sends an object again after a while.

Version = tuple[int, int]  # of Python: (3, 12)
LineAt = Callable[[Version, bytes, int, int], int | None]
PYTHON_ENTRY = int(PythonAt.PYTHON_ENTRY)  # the interpreter was entered from C for the frame
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


# The source line of an instruction, from a code object's line table.
#
# Three formats: up to 3.9 pairs of (bytes, lines) forward; 3.10 the same as ranges, with
# ranges that have no line; from 3.11 a table of locations. The bytes come from a traced
# process: any of them give a line or None, in time linear in their number.


Ranges = Iterator[tuple[int, int | None]]  # (where the range ends, its line)
CODE_UNIT_BYTES = 2
NO_LINE_DELTA = 0x80  # 3.10: -128
MAX_VARINT_BYTES = 6  # of 6 bits each; lines need no more
MAX_LINE = 1 << 31
AT_BITS = 31  # of a frame's instruction; the sign is the highest of them
# the location table, 3.11 and later: where an entry begins, and kinds of entries
ENTRY = 128
_LONG, _NO_COLUMNS, _NONE = 14, 13, 15
_ONE_LINE = range(10, 13)


def line_at(version: tuple[int, int], table: bytes, first_line: int, at: int) -> int | None:
    """The line of the instruction `at`; None: it has none, or the table does not tell.

    `at` counts bytes from the start of the bytecode, in 3.10 units of two; before the
    first instruction (a call that has not begun) it is the function's own line.
    """
    if at >> (AT_BITS - 1) & 1 or at < 0:
        return first_line
    if version < (3, 11) and len(table) % 2:
        return None
    if version < (3, 10):
        line: int | None = _line_up_to_3_9(table, first_line, at)
    elif version == (3, 10):
        line = _covering(_ranges_3_10(table, first_line), at * CODE_UNIT_BYTES)
    else:
        line = _covering(_ranges(table, first_line), at)
    return line if line is not None and 0 <= line < MAX_LINE else None


def _covering(ranges: Ranges, at: int) -> int | None:
    return next((line for end, line in ranges if at < end), None)


def _line_up_to_3_9(table: bytes, line: int, at: int) -> int:
    address = 0
    for step, lines in zip(table[::2], table[1::2], strict=False):
        address += step
        if address > at:
            break
        line += _signed(lines)
    return line


def _ranges_3_10(table: bytes, line: int) -> Ranges:
    end = 0
    for step, lines in zip(table[::2], table[1::2], strict=False):
        end += step
        if lines == NO_LINE_DELTA:
            yield end, None
        else:
            line += _signed(lines)
            yield end, line


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _ranges(table: bytes, line: int) -> Ranges:
    """An entry begins with a byte whose highest bit is set, and with none of the others."""
    end, index = 0, 0
    while index < len(table):
        head, index = table[index], index + 1
        kind = head >> 3 & 15
        end += ((head & 7) + 1) * CODE_UNIT_BYTES
        delta = _delta(table, index, kind)
        if head < ENTRY or delta is None:
            return
        line += delta
        yield end, None if kind == _NONE else line
        while index < len(table) and table[index] < ENTRY:
            index += 1


def _delta(table: bytes, index: int, kind: int) -> int | None:
    """By how many lines an entry goes on; None: it is cut short."""
    if kind in _ONE_LINE:
        return kind - _ONE_LINE.start
    if kind not in (_NO_COLUMNS, _LONG):
        return 0
    value = 0
    for count, byte in enumerate(table[index : index + MAX_VARINT_BYTES]):
        value |= (byte & 63) << 6 * count
        if byte < 64:
            return -(value >> 1) if value & 1 else value >> 1
        if byte >= ENTRY:
            break
    return None
