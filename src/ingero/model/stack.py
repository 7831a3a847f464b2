"""A stack as it is stored and shown, innermost frame first.

Its hash comes from what is shown and from nothing else: the same code in two processes,
or in two runs, has the same hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingero.model.numbers import Word

Kind = Literal["python", "native", "note"]
_POSITIVE = (1 << 63) - 1  # SQLite's integers are signed, and 0 means no stack


class Frame(NamedTuple):
    """One line of a stack; a note says in its function what is not shown."""

    kind: Kind
    function: str
    file: str | None = None
    line: int | None = None
    module: str | None = None


class NativeFrame(NamedTuple):
    """A place in a program or library; offset is the virtual address in its file, as addr2line takes it."""

    function: str
    module: str
    offset: Word


class PythonFrame(NamedTuple):
    """A Python frame, and whether the interpreter was entered from C for it."""

    frame: Frame
    entry: bool


@dataclass(frozen=True, slots=True)
class ResolvedStack:
    hash: int
    frames: tuple[Frame, ...]


def note(text: str) -> Frame:
    return Frame("note", f"[{text}]")


def resolved(frames: Iterable[Frame]) -> ResolvedStack:
    kept = tuple(frames)
    digest = hashlib.blake2b(json.dumps(kept).encode(), digest_size=8).digest()
    return ResolvedStack(int.from_bytes(digest, "little") & _POSITIVE or 1, kept)


def lookups(addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Where to look for each address of stacks, innermost in the first column.

    All others are return addresses: the call is the instruction before, and may be its function's last.
    """
    calls = addresses - np.minimum(addresses, np.uint64(1))
    calls[..., :1] = addresses[..., :1]
    return calls
