"""What reads other people's things: processes, their memory, and the files they run.

Each method is one question with a plain answer. A reader process (`reader_process.py`) answers
them, because a process or a file system can make any of these wait for ever. What is
remembered here is lost when a reader is replaced: it is read again.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ingero.attach.session import Plan, plan
from ingero.discover import processes
from ingero.discover.communicator_layout import CommLayout, UnknownLayoutError, read_layout
from ingero.discover.kernel_handles import HandleNames
from ingero.discover.libraries import Library, LibraryFinder
from ingero.discover.native_symbols import NativeSymbols
from ingero.discover.process_memory import NotThereError, ProcessMemory, TooMuchError
from ingero.discover.python_layout import PythonFrames, frames_of
from ingero.discover.python_objects import LongCode, read_code
from ingero.discover.python_runtime import Runtime, RuntimeFinder
from ingero.discover.python_threads import counts_its_own
from ingero.errors import FileFormatError
from ingero.model.numbers import Half, Word
from ingero.model.stack import NativeFrame
from ingero.model.window import Container, Process
from ingero.native.demangle import demangle

MAX_FRAMES = 64
MAX_STACK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PythonLook:
    """The interpreter of a process, if it has one."""

    runtime: Runtime | None
    frames: PythonFrames | None
    counts_its_own: bool = False


class Reading:
    """Every question there is."""

    def __init__(self) -> None:
        self._libraries = LibraryFinder()
        self._runtimes = RuntimeFinder()
        self._symbols = NativeSymbols()
        self._handles = HandleNames()

    # --- processes -------------------------------------------------------------------

    def process(self, pid: int) -> tuple[Process, Container] | None:
        return processes.read_process_and_container(pid)

    def environment(self, pid: int) -> dict[str, str]:
        return processes.environment(pid)

    def libraries_of(self, pid: int) -> list[Library]:
        return self._libraries.libraries_of(pid)

    def executable_carries(self, pid: int) -> bool:
        return self._libraries.executable_carries(pid)

    def python(self, pid: int, with_frames: bool) -> PythonLook:
        """Raises ProcessLookupError or FileNotFoundError when it is gone."""
        runtime = self._runtimes.runtime_of(pid)
        frames = frames_of(pid, runtime) if runtime and with_frames else None
        return PythonLook(runtime, frames, runtime is not None and counts_its_own(pid))

    def long_code(self, pid: int, layout: np.void, code: int, sign: int) -> LongCode | None:
        return read_code(pid, layout, code, sign)

    def return_addresses(self, pid: int, sp: int, bp: int) -> list[Word]:
        """Innermost first, as far as frame pointers lead."""
        found: list[int] = []
        low = sp
        with suppress(OSError, NotThereError, TooMuchError), ProcessMemory(pid) as memory:
            # The stack grows down: callers lie above, and not absurdly far.
            while len(found) < MAX_FRAMES and low <= bp < sp + MAX_STACK_BYTES and bp % 8 == 0:
                low = bp + 16
                bp, address = struct.unpack("<QQ", memory.read(bp, 16))
                found.append(address)
        return found

    def handle_names(self, pid: int, handles: list[int]) -> dict[Word, bytes]:
        return self._handles.names(pid, handles)

    def frames_at(self, pid: int, addresses: bytes, start_ns: int) -> list[NativeFrame | None]:
        return self._symbols.frames_at(pid, np.frombuffer(addresses, "<u8"), start_ns)

    def readable(self, pid: int, names: list[bytes]) -> list[str]:  # noqa: ARG002
        """C++ names of a process, as people write them."""
        return demangle(names)

    def look_at_code(self, pid: int) -> None:
        self._symbols.look([pid])

    def news(self, mapped: list[int], gone: list[int]) -> None:
        """Processes that mapped something of any kind, and those whose numbers are free."""
        self._symbols.mapped(mapped)
        self._symbols.forget(gone)
        self._handles.forget(gone)

    # --- files -----------------------------------------------------------------------

    def kind_at(self, path: bytes, file: tuple[int, int]) -> str | None:
        return self._libraries.kind_at(os.fsdecode(path), file)

    def owner(self, path: str) -> Half | None:
        try:
            return Path(path).stat().st_uid
        except OSError:
            return None

    def plan(self, path_for_kernel: str, kind: str, without: list[str], costly: bool) -> Plan:
        """Raises FileFormatError."""
        return plan(path_for_kernel, kind, frozenset(without), costly)

    def communicator(self, path_for_kernel: str) -> CommLayout | str | None:
        """How a library keeps its communicators, or why that is not known; None: seen while it was loaded."""
        try:
            return read_layout(path_for_kernel)
        except UnknownLayoutError as error:
            return str(error)
        except FileFormatError:
            return None
