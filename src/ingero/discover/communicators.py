"""Where an NCCL library keeps the rank, size and hash of a communicator.

The object is private and differs between versions, but the library says itself where things
lie: `ncclCommUserRank`, `ncclCommCount` and `ncclCommCuDevice` hand out one field each, and
their code is read. In every version from 2.16 to 2.32 (docs/adr/0023) the three lie side by
side, right after a number that all ranks share: the communicator's hash (before 2.18, the
magic number of its network connections). Where they do not, nothing is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingero.model.numbers import Half, Word
from ingero.native.accessors import MAX_CODE_BYTES, field_offset, stored_constant
from ingero.native.elf import ElfFile, Source, find_in

OLDEST = 21600
MAGIC_SINCE = 22100  # the first word of a communicator says that it is one, and is cleared at its end
MAGIC = 0x0280028002800280
MAX_VERSION = 99999

_FIELDS = ("ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice")
_VERSION = "ncclGetVersion"


@dataclass(frozen=True, slots=True)
class CommLayout:
    """Offsets within a communicator; the size and the device follow the rank."""

    version: int  # as ncclGetVersion tells it: 22809 is 2.28.9
    hash_at: Half
    rank_at: Half
    magic: Word = 0  # the first word; 0: none


class UnknownLayoutError(Exception):
    """The library does not say where things lie, or says what no known version does."""


def read_layout(source: Source) -> CommLayout | None:
    """What the library's own functions tell; None where it has no communicators. FileFormatError too."""
    with ElfFile(source) as elf:
        found = find_in(elf.functions, (*_FIELDS, _VERSION))
        code = {
            name: elf.read(symbol.offset, min(symbol.size, MAX_CODE_BYTES)) for name, symbol in found.items()
        }
        return layout_of(code, elf.machine) if code else None


def layout_of(code: dict[str, bytes], machine: int) -> CommLayout:
    """From the machine code of the functions."""
    missing = [name for name in (*_FIELDS, _VERSION) if name not in code]
    if missing:
        raise UnknownLayoutError(f"the library has no {missing[0]}")
    version = stored_constant(code[_VERSION], machine, 1000, MAX_VERSION)
    if version is None or version < OLDEST:
        raise UnknownLayoutError(
            f"NCCL {version or 'of an unknown version'} is not known, 2.16 and later are"
        )
    places = [field_offset(code[name], machine) for name in _FIELDS]
    rank_at = places[0]
    if rank_at is None or rank_at < 16 or rank_at % 8 or places != [rank_at, rank_at + 4, rank_at + 8]:
        raise UnknownLayoutError("rank, size and device of a communicator do not lie side by side")
    return CommLayout(
        version,
        rank_at - 8,
        rank_at,
        MAGIC if version >= MAGIC_SINCE else 0,
    )
