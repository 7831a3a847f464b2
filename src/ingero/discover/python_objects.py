"""Objects and frames of a live interpreter, read with offsets that may be wrong.

Everything read is held against what it must be: an offset that does not fit this build
leads to something that is no code object, no str, no chain of frames. A type is known by
its name: its address is another one where a program has copied it into itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ingero.discover.python_memory import ProcessMemory

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
class Code:
    """A code object that was found to be one."""

    type: int
    name: str
    file: str
    first_line: int
    text_type: int  # of its name, and of its line table
    bytes_type: int


@dataclass(frozen=True, slots=True)
class Reader:
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

    def code(self, address: int) -> Code:
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
        return Code(types[0], *texts, first_line, *types[1:])

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
