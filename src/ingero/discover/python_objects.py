"""Objects and frames of a live interpreter, read with offsets that may be wrong.

Everything read is held against what it must be: an offset that does not fit this build
leads to something that is no code object, no str, no chain of frames. A type is known by
its name: its address is another one where a program has copied it into itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ingero.discover.process_memory import NotThereError, ProcessMemory, TooMuchError
from ingero.model.layout import PythonFlag, Sign
from ingero.model.numbers import Signed

MAX_NAME_CHARACTERS = 16_384
MAX_LINES_BYTES = 16 << 20
MAX_FIRST_LINE = 1 << 28
MAX_FRAMES = 4096  # looked at; deeper chains are as good
MAX_OWNER = 8  # 3.14 has five kinds of owner
CODE_UNIT_BYTES = 2
TAG_BITS = 7  # objects are aligned to at least 8: what is below is not address
Offsets = Mapping[str, int]


class MisfitError(Exception):
    """What was read cannot be what it should be: a wrong offset, or it changed meanwhile."""


@dataclass(frozen=True, slots=True)
class PythonCode:
    """A code object that was found to be one."""

    type: int
    name: str
    file: str
    first_line: int
    text_type: int  # of its name, and of its line table
    bytes_type: int


@dataclass(frozen=True, slots=True)
class ObjectReader:
    """A process's memory and where things lie in it."""

    memory: ProcessMemory
    at: Offsets

    def expect(self, address: int, name: str) -> None:
        """An object of this type, whose fields take as many bytes as they are taken to."""
        kind = self.memory.word(address + self.at["object_type"])
        found = self.memory.string(self.memory.word(kind + self.at["type_name"]))
        if address % 8 or found != name:
            raise MisfitError(f"no {name} at {address:#x}")
        size, expected = self.memory.word(kind + self.at["type_size"]), self._size_of(name)
        if expected is not None and size != expected:
            raise MisfitError(f"a {name} has {size} bytes instead of {expected}")

    def _size_of(self, name: str) -> int | None:
        """What a type states as its size: it ends where the variable part begins."""
        at = self.at
        sizes = {"str": at["text_compact"] + 8, "bytes": at["bytes_data"] + 1, "frame": at.get("frame_size")}
        sizes["code"] = at.get("code_bytecode", at.get("code_size"))
        return sizes.get(name)

    def text(self, address: int) -> str:
        """A str as compilers make them: compact."""
        self.expect(address, "str")
        at = self.at
        length = self.memory.word(address + at["text_length"])
        state = self.memory.signed32(address + at["text_state"]) >> at["text_kind_shift"]
        unit, compact, ascii_only = state & 7, state >> 3 & 1, state >> 4 & 1
        if unit not in (1, 2, 4) or not compact or length > MAX_NAME_CHARACTERS or (ascii_only and unit > 1):
            raise MisfitError(f"no text at {address:#x}")
        start = address + (at["text_ascii"] if ascii_only else at["text_compact"])
        raw = self.memory.read(start, (length + 1) * unit)
        if raw[length * unit :].strip(b"\0"):
            raise MisfitError(f"a text without end at {address:#x}")
        encoding = "ascii" if ascii_only else {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[unit]
        try:
            return raw[: length * unit].decode(encoding, "surrogatepass" if unit > 1 else "strict")
        except UnicodeDecodeError as error:
            raise MisfitError(f"no text at {address:#x}") from error

    def bytes_length(self, address: int) -> int:
        self.expect(address, "bytes")
        length = self.memory.word(address + self.at["bytes_length"])
        if length > MAX_LINES_BYTES:
            raise MisfitError(f"no bytes at {address:#x}")
        if self.memory.byte(address + self.at["bytes_data"] + length):
            raise MisfitError(f"bytes without end at {address:#x}")
        return length

    def code(self, address: int) -> PythonCode:
        """A code object, every field of it that is used later."""
        self.expect(address, "code")
        at, memory = self.at, self.memory
        first_line = memory.signed32(address + at["code_first_line"])
        if not -1 <= first_line < MAX_FIRST_LINE:
            raise MisfitError(f"no first line at {address:#x}")
        lines, name = memory.word(address + at["code_lines"]), memory.word(address + at["code_name"])
        self.bytes_length(lines)
        texts = self.text(name), self.text(memory.word(address + at["code_file"]))
        types = [memory.word(each + at["object_type"]) for each in (address, name, lines)]
        return PythonCode(types[0], *texts, first_line, *types[1:])

    def instruction(self, frame: int, code: int) -> int:
        """Bytes from the code's first instruction to the frame's, or less than 0 before the first."""
        at, memory = self.at, self.memory
        if "code_bytecode" not in at:
            index = memory.signed32(frame + at["frame_at"])
            size = self.bytes_length(memory.word(code + at["code_bytes"]))
            return _inside(index, size)
        start = code + at["code_bytecode"]
        size = memory.word(code + at["code_units"]) * CODE_UNIT_BYTES
        if "code_tlbc" in at:
            copies = memory.word(code + at["code_tlbc"])
            index = memory.signed32(frame + at["frame_tlbc"])
            if not 0 <= index < memory.word(copies):
                raise MisfitError(f"no copy of the code for the frame {frame:#x}")
            start = memory.word(copies + 8 + 8 * index)
        return _inside(memory.word(frame + at["frame_at"]) - start, size)

    def frame_of(self, state: int) -> int:
        """The innermost frame of a thread state; 0 when it has none."""
        frame = self.memory.word(state + self.at["state_frame"])
        if frame and "cframe_frame" in self.at:
            return self.memory.word(frame + self.at["cframe_frame"])
        return frame

    def frames(self, frame: int) -> Iterator[tuple[int, int]]:
        """(frame, code) from a frame outwards; code 0: it only stands for an entry from C."""
        seen: set[int] = set()
        while frame and len(seen) < MAX_FRAMES:
            if frame in seen or frame % 8:
                raise MisfitError(f"no chain of frames at {frame:#x}")
            seen.add(frame)
            if "frame_size" in self.at:
                self.expect(frame, "frame")
            code = self.memory.word(frame + self.at["frame_code"]) & ~TAG_BITS
            yield frame, 0 if self._is_entry(frame) else code
            frame = self.memory.word(frame + self.at["frame_back"])

    def _is_entry(self, frame: int) -> bool:
        if "frame_mark" not in self.at:
            return False
        mark = self.memory.byte(frame + self.at["frame_mark"])
        owners = "owner_c" in self.at  # else it says whether the interpreter was entered for the frame
        if mark > (MAX_OWNER if owners else 1):
            raise MisfitError(f"no frame at {frame:#x}")
        return owners and mark >= self.at["owner_c"]


def _inside(offset: int, size: int) -> int:
    if not -CODE_UNIT_BYTES <= offset <= size:
        raise MisfitError("an instruction outside of its code")
    return offset


# A code object too long for the kernel's record, read out of its process.
#
# Between the kernel's walk and this the object may have been freed and its place taken by
# another: its sign is computed as the kernel does (probes/walk.bpf.h), after everything
# was read, and what does not bear the sign is not taken.


MAX_TEXT_BYTES = 1 << 16
MAX_TABLE_BYTES = 4 << 20
PEEK_BYTES = int(Sign.PEEK_BYTES)
_CODECS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_WORD = (1 << 64) - 1


class LongCode(NamedTuple):
    name: str
    file: str
    first_line: Signed
    table: bytes


def read_code(pid: int, layout: np.void, address: int, sign: int) -> LongCode | None:
    """None where it is gone, or another one by now."""
    try:
        with ProcessMemory(pid, reads=64) as memory:
            reader = _CodeReader(memory, layout)
            found = reader.read(address)
            return found if reader.sign(address) == sign else None
    except (NotThereError, TooMuchError, OSError):
        return None


class _CodeReader:
    def __init__(self, memory: ProcessMemory, layout: np.void) -> None:
        self.memory = memory
        self.at = {name: int(layout[name]) for name in layout.dtype.names or ()}

    def read(self, address: int) -> LongCode:
        pointers = self._pointers(address)
        lines = pointers["code_lines"]
        self._expect(lines, "bytes_type")
        size = self.memory.word(lines + self.at["bytes_length"])
        if size > MAX_TABLE_BYTES:
            raise NotThereError(f"no line table at {lines:#x}")
        table = self.memory.read(lines + self.at["bytes_data"], size) if size else b""
        first_line = self.memory.signed32(address + self.at["code_first_line"])
        return LongCode(
            self._text(pointers["code_name"]), self._text(pointers["code_file"]), first_line, table
        )

    def _pointers(self, address: int) -> dict[str, int]:
        names = ("code_name", "code_file", "code_lines")
        return {name: self.memory.word(address + self.at[name]) for name in names}

    def _expect(self, address: int, kind: str) -> None:
        if self.memory.word(address + self.at["object_type"]) != self.at[kind]:
            raise NotThereError(f"no object of the {kind} at {address:#x}")

    def _characters(self, address: int) -> tuple[int, int, int]:
        """Where a str's characters are, how many bytes, and of what width; as text_at() has it."""
        self._expect(address, "text_type")
        length = self.memory.word(address + self.at["text_length"])
        state = self.memory.signed32(address + self.at["text_state"]) >> self.at["text_kind_shift"]
        unit, start = state & 7, self.at["text_ascii" if state & 16 else "text_compact"]
        if unit not in _CODECS or not state & 8 or (state & 16 and unit != 1):
            raise NotThereError(f"no text at {address:#x}")
        if length > MAX_TEXT_BYTES:
            raise NotThereError(f"too long a text at {address:#x}")
        return address + start, length * unit, unit

    def _text(self, address: int) -> str:
        start, size, unit = self._characters(address)
        return self.memory.read(start, size).decode(_CODECS[unit], "replace") if size else ""

    def sign(self, address: int) -> int:
        """As sign_of() has it."""
        pointers = self._pointers(address)
        first_line = self.memory.signed32(address + self.at["code_first_line"]) & 0xFFFFFFFF
        words = [first_line, pointers["code_name"], pointers["code_file"], pointers["code_lines"]]
        if self.at["flags"] & PythonFlag.PYTHON_VERSIONED:
            words.append(self.memory.signed32(address + self.at["code_version"]) & 0xFFFFFFFF)
        else:
            words += self._peek(*self._characters(pointers["code_name"])[:2])
            words += self._peek(*self._characters(pointers["code_file"])[:2])
            lines = pointers["code_lines"]
            size = self.memory.word(lines + self.at["bytes_length"])
            words += self._peek(lines + self.at["bytes_data"], size)
        sign = self.at["program"]
        for word in words:
            sign = stir(sign, word)
        return sign & 0xFFFFFFFF

    def _peek(self, start: int, size: int) -> list[int]:
        """How many bytes, and the first and the last of them."""
        data = self.memory.read(start, min(size, PEEK_BYTES)) if size else b""
        if size > PEEK_BYTES:
            data += self.memory.read(start + size - PEEK_BYTES, PEEK_BYTES)
        return [size, *_words(data)[: -(-size // 8)]]


def stir(hash_: int, word: int) -> int:
    hash_ = ((hash_ ^ word) * 0x9E3779B97F4A7C15) & _WORD
    return hash_ ^ hash_ >> 29


def _words(data: bytes) -> list[int]:
    padded = data.ljust(-(-len(data) // 8) * 8, b"\0")
    return [int.from_bytes(padded[at : at + 8], "little") for at in range(0, len(padded), 8)]
