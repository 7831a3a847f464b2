"""A code object too long for the kernel's record, read out of its process.

Between the kernel's walk and this the object may have been freed and its place taken by
another: its sign is computed as the kernel does (probes/walk.bpf.h), after everything
was read, and what does not bear the sign is not taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ingero.discover.python_memory import NotThereError, ProcessMemory, TooMuchError
from ingero.model.layout import PythonFlag
from ingero.model.numbers import Signed

MAX_TEXT_BYTES = 1 << 16
MAX_TABLE_BYTES = 4 << 20
PEEK_BYTES = 32
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
            reader = _Reader(memory, layout)
            found = reader.read(address)
            return found if reader.sign(address) == sign else None
    except (NotThereError, TooMuchError, OSError):
        return None


class _Reader:
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
