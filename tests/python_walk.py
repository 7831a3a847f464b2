"""Walks the Python frames of a process the way the kernel does: with a PYTHON_LAYOUT record and its memory.

Knows nothing else of Python: what the record does not say, this cannot find.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ingero.model.layout import PythonFlag

MASK = (1 << 64) - 1


class Walked(NamedTuple):
    """A frame: `at` as the record's version counts it, `entered` from C."""

    name: str
    file: str
    first_line: int
    lines: bytes
    at: int
    entered: bool
    version: int  # of the code object


class Walk:
    def __init__(self, pid: int, layout: Any) -> None:
        self.layout = layout
        self.flags = int(layout["flags"])
        self.fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY)

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def at(self, name: str) -> int:
        return int(self.layout[name])

    def has(self, flag: PythonFlag) -> bool:
        return bool(self.flags & flag)

    def number(self, address: int, size: int = 8, signed: bool = False) -> int:
        data = os.pread(self.fd, size, address)
        assert len(data) == size
        return int.from_bytes(data, "little", signed=signed)

    def state(self, thread_pointer: int) -> int:
        """The thread state of the thread with this thread pointer."""
        base = thread_pointer
        if self.has(PythonFlag.PYTHON_KEY_BLOCK):
            base = self.number(thread_pointer + self.at("key_block"))
        state = self.number(base + self.at("thread_state"))
        assert self.number(state + self.at("state_thread_id")) == thread_pointer
        return state

    def native_id(self, thread_pointer: int) -> int:
        if self.at("state_native_id"):
            return self.number(self.state(thread_pointer) + self.at("state_native_id"))
        return self.number(thread_pointer + self.at("thread_tid"), 4)

    def frames(self, thread_pointer: int) -> list[Walked]:
        """Innermost first."""
        frame = self.number(self.state(thread_pointer) + self.at("state_frame"))
        if frame and self.has(PythonFlag.PYTHON_CFRAME):
            frame = self.number(frame + self.at("cframe_frame"))
        found: list[Walked] = []
        while frame:
            mark = self.number(frame + self.at("frame_mark"), 1)
            if self.has(PythonFlag.PYTHON_OWNER) and mark >= self.at("owner_c"):
                if found:
                    found[-1] = found[-1]._replace(entered=True)
            else:
                entered = self.has(PythonFlag.PYTHON_EACH_ENTERS)
                entered |= self.has(PythonFlag.PYTHON_IS_ENTRY) and mark == 1
                found.append(self.frame(frame, entered))
            frame = self.number(frame + self.at("frame_back"))
        return found

    def frame(self, frame: int, entered: bool) -> Walked:
        code = self.number(frame + self.at("frame_code"))
        if self.has(PythonFlag.PYTHON_TAGGED):
            code &= ~7
        assert self.number(code + self.at("object_type")) == self.at("code_type")
        name = self.number(code + self.at("code_name"))
        version = 0
        if self.has(PythonFlag.PYTHON_VERSIONED):
            version = self.number(code + self.at("code_version"), 4)
        return Walked(
            self.text(name),
            self.text(self.number(code + self.at("code_file"))),
            self.number(code + self.at("code_first_line"), 4, signed=True),
            self.data(self.number(code + self.at("code_lines"))),
            self.instruction(frame, code),
            entered,
            version,
        )

    def instruction(self, frame: int, code: int) -> int:
        if self.has(PythonFlag.PYTHON_LASTI):
            return self.number(frame + self.at("frame_at"), 4, signed=True)
        start = code + self.at("code_bytecode")
        if self.has(PythonFlag.PYTHON_THREAD_CODE):
            copies = self.number(code + self.at("code_tlbc"))
            index = self.number(frame + self.at("frame_tlbc"), 4)
            start = self.number(copies + 8 + 8 * index)
        return self.number(frame + self.at("frame_at")) - start

    def text(self, address: int) -> str:
        length = self.number(address + self.at("text_length"))
        state = self.number(address + self.at("text_state"), 4) >> self.at("text_kind_shift")
        unit, ascii_only = state & 7, state >> 4 & 1
        start = address + self.at("text_ascii" if ascii_only else "text_compact")
        raw = os.pread(self.fd, length * unit, start)
        return raw.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[unit])

    def data(self, address: int) -> bytes:
        length = self.number(address + self.at("bytes_length"))
        return os.pread(self.fd, length, address + self.at("bytes_data"))
