"""The memory of a process that says it is Python: what a real one has, changed while it is read.

Every read of a real interpreter is written down; an input is that list with changes, and
reads are answered from it. Where a changed pointer leads elsewhere, nothing is mapped.
"""

from __future__ import annotations

import bisect
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

from benchmarks.fuzz.target import Try
from ingero.discover import kernel_handles, python_layout, python_objects, python_runtime
from ingero.discover.process_memory import NotThereError, ProcessMemory
from ingero.discover.python_runtime import Runtime, RuntimeFinder
from ingero.discover.python_threads import own_numbers

_HEAD = struct.Struct("<QI")


class Recording(ProcessMemory):
    """Remembers what was read where."""

    seen: ClassVar[dict[int, bytes]] = {}

    def read_up_to(self, address: int, size: int) -> bytes:
        data = super().read_up_to(address, size)
        if len(data) > len(self.seen.get(address, b"")):
            self.seen[address] = data
        return data


class Replayed(ProcessMemory):
    """Answers from what was written down."""

    ranges: ClassVar[list[tuple[int, bytes]]] = []
    starts: ClassVar[list[int]] = []

    def __init__(self, pid: int, reads: int = 60_000) -> None:
        super().__init__(os.getpid(), reads)

    def read_up_to(self, address: int, size: int) -> bytes:
        self._spend(address, size)
        at = bisect.bisect_right(self.starts, address) - 1
        for start, data in reversed(self.ranges[max(0, at - 8) : at + 1]):
            if start <= address < start + len(data):
                return data[address - start : address - start + size]
        raise NotThereError(f"nothing at {address:#x}")


PROGRAM = "import sys; print(1, flush=True); sys.stdin.read()"
MODULES = (python_layout, python_objects, kernel_handles)


@contextmanager
def instead(kind: type[ProcessMemory]) -> Iterator[None]:
    before = [module.ProcessMemory for module in MODULES]
    for module in MODULES:
        module.ProcessMemory = kind  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, real in zip(MODULES, before, strict=True):
            module.ProcessMemory = real  # type: ignore[attr-defined]


@contextmanager
def sleeping() -> Iterator[int]:
    """A Python that stays where it is, with the same addresses every time."""
    command = ["setarch", "-R", sys.executable, "-I", "-S", "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield child.pid
        finally:
            child.kill()


@cache
def looked_at() -> tuple[Runtime, Any, bytes]:
    """Its runtime, its layout, and what was read of it to learn that; its threads stand at address 0."""
    Recording.seen.clear()
    with sleeping() as pid, instead(Recording):
        runtime = RuntimeFinder().runtime_of(pid)
        if runtime is None:
            raise RuntimeError("no Python was found in a Python")
        found = python_layout.frames_of(pid, runtime)
        threads = own_numbers(pid)
    if found.layout is None:
        raise RuntimeError(f"the frames of a Python cannot be read: {found.why}")
    numbers = b"".join(each.to_bytes(8, "little") for each in sorted(threads))
    return runtime, found.layout, packed([(0, numbers), *sorted(Recording.seen.items())])


def packed(ranges: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(_HEAD.pack(at, len(data)) + data for at, data in ranges)


def unpacked(raw: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at + _HEAD.size <= len(raw):
        address, size = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        found.append((address, raw[at : at + size]))
        at += size
    return sorted(found)


def memories() -> Sequence[bytes]:
    return [looked_at()[2]]


def mutated_memory(corpus: Sequence[bytes], chance: Any, words: Sequence[bytes]) -> bytes:
    """Contents change, hardly ever the addresses: else nothing is found at the first step."""
    ranges = unpacked(chance.choice(corpus))
    pointers = [address for address, _ in ranges if address]
    for _ in range(chance.randrange(1, 12)):
        row = chance.randrange(1, len(ranges))  # the first are its threads, which the kernel tells
        address, data = ranges[row]
        changed = bytearray(data)
        at = chance.randrange(len(changed)) // 8 * 8
        value = chance.choice(
            (
                chance.choice(pointers),
                chance.getrandbits(64),
                chance.choice((0, 1, 8, 1 << 40, (1 << 64) - 1)),
            )
        )
        changed[at : at + 8] = value.to_bytes(8, "little")[: len(changed) - at]
        ranges[row] = (address, bytes(changed))
    return packed(ranges)


@contextmanager
def read_memory() -> Iterator[Try]:
    runtime, layout, _ = looked_at()
    before = python_layout.TRY_AGAIN_S, python_layout.own_numbers
    python_layout.TRY_AGAIN_S = 0  # nothing changes while it is looked at

    def attempt(data: bytes) -> None:
        ranges = unpacked(data)
        threads = b"".join(each for address, each in ranges if address == 0)
        numbers = [int.from_bytes(threads[at : at + 8], "little") for at in range(0, len(threads), 8)]
        setattr(python_layout, "own_numbers", lambda _: dict(zip(numbers, numbers, strict=True)))  # noqa: B010
        Replayed.ranges = [each for each in ranges if each[0]]
        Replayed.starts = [address for address, _ in Replayed.ranges]
        python_layout.frames_of(os.getpid(), runtime)
        for address in Replayed.starts[:20]:
            python_objects.read_code(os.getpid(), layout, address, 0)
        python_runtime.lock_of(runtime)
        kernel_handles.HandleNames().names(os.getpid(), Replayed.starts[:8])

    try:
        with instead(Replayed):
            yield attempt
    finally:
        python_layout.TRY_AGAIN_S, python_layout.own_numbers = before
