"""Where an NCCL library keeps the rank, size and hash of a communicator.

The object is private and differs between versions, but the library says itself where things
lie: `ncclCommUserRank`, `ncclCommCount` and `ncclCommCuDevice` hand out one field each, and
their code is read. In every version from 2.16 to 2.32 (docs/adr/0023) the three lie side by
side, right after a number that all ranks share: the communicator's hash (before 2.18, the
magic number of its network connections). Where they do not, nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingero.model.numbers import Half, Word
from ingero.native.elf import EM_AARCH64, EM_X86_64, ElfFile, Source, find_in

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


# Which field of an object a small function hands out, read from its machine code.
#
# `int get(object *o, int *out)` ends in a load from the object and a store to where `out`
# points, whatever checks come before: only that pair is looked for, with the registers into
# which the function put its two arguments. What does not say exactly one field says nothing.
# This is not a disassembler: a byte sequence that merely looks like such a pair, with the
# right registers, would count as a second answer, and two answers are none.


MAX_CODE_BYTES = 4096  # those of NCCL have 600 to 800
MAX_OFFSET = 1 << 24
BETWEEN_BYTES = 16  # the load and the store have at most this much code between them
BETWEEN_WORDS = 4
LONGEST = 8  # bytes of the instructions looked for
RDI, RSI = 7, 6


def field_offset(code: bytes, machine: int) -> int | None:
    """Where in its first argument's object the int lies that the function stores at its second."""
    found = set(_fields_x86(code) if machine == EM_X86_64 else ())
    if machine == EM_AARCH64:
        found = set(_fields_arm64(_words(code)))
    return found.pop() if len(found) == 1 else None


def stored_constant(code: bytes, machine: int, least: int, most: int) -> int | None:
    """The one number within these bounds that the function stores through a pointer."""
    found: set[int] = set()
    if machine == EM_X86_64:
        found = set(_constants_x86(code))
    elif machine == EM_AARCH64:  # movz w, #n
        found = {word >> 5 & 0xFFFF for word in _words(code) if word & 0xFFE00000 == 0x52800000}
    found = {each for each in found if least <= each <= most}
    return found.pop() if len(found) == 1 else None


# --- x86-64 -------------------------------------------------------------------------


def _fields_x86(code: bytes) -> Iterator[int]:
    length, code = len(code), code + bytes(LONGEST)
    for at in range(length):
        load = _access(code, at, 0x8B)
        if load is None:
            continue
        value, base, offset, end = load
        if not 0 < offset < MAX_OFFSET or base not in _copies_x86(code[:at], RDI):
            continue
        for then in range(end, min(end + BETWEEN_BYTES, length)):
            store = _access(code, then, 0x89)
            if store and store[0] == value and store[2] == 0 and store[1] in _copies_x86(code[:at], RSI):
                yield offset
                break


def _access(code: bytes, at: int, opcode: int) -> tuple[int, int, int, int] | None:
    """`mov` of 32 bits between memory and a register: register, base, offset, where the next one begins."""
    prefix = code[at] if 0x40 <= code[at] <= 0x4F else 0
    if prefix & 0x0A:  # 64 bits, or an index
        return None
    place = at + bool(prefix)
    if code[place] != opcode:
        return None
    form = code[place + 1]
    size = {0: 0, 1: 1, 2: 4}.get(form >> 6)
    base, place = form & 7, place + 2
    if size is None or (base == 5 and size == 0):  # a register, or relative to the code
        return None
    if base == 4:  # a byte more: r12 is written with one, and no index
        if code[place] != 0x24:
            return None
        place += 1
    offset = int.from_bytes(code[place : place + size], "little", signed=True)
    return (form >> 3 & 7) | (prefix & 4) << 1, base | (prefix & 1) << 3, offset, place + size


def _copies_x86(code: bytes, argument: int) -> set[int]:
    """The register of an argument and those it was copied to: `mov %rdi, reg`."""
    found = {argument}
    for at in range(len(code) - 2):
        prefix, opcode, form = code[at : at + 3]
        if prefix in (0x48, 0x49) and opcode == 0x89 and form >> 3 == 0x18 | argument:
            found.add((form & 7) | (prefix & 1) << 3)
    return found


def _constants_x86(code: bytes) -> Iterator[int]:
    for at in range(len(code) - 5):
        if code[at] == 0xC7 and code[at + 1] < 8 and code[at + 1] not in (4, 5):  # movl $n, (reg)
            yield int.from_bytes(code[at + 2 : at + 6], "little")


# --- arm64 --------------------------------------------------------------------------


def _words(code: bytes) -> list[int]:
    return [int.from_bytes(code[at : at + 4], "little") for at in range(0, len(code) - 3, 4)]


def _fields_arm64(words: list[int]) -> Iterator[int]:
    for at, word in enumerate(words):
        if word & 0xFFC00000 != 0xB9400000:  # ldr w, [x, #n]
            continue
        value, base, low = word & 31, word >> 5 & 31, (word >> 10 & 0xFFF) * 4
        offset = _base_arm64(words[:at], base)
        stores = words[at + 1 : at + 1 + BETWEEN_WORDS]
        outs = [each >> 5 & 31 for each in stores if each & 0xFFFFFC1F == 0xB9000000 | value]
        if offset is None or not 0 < offset + low < MAX_OFFSET:
            continue
        if any(out in _copies_arm64(words[:at], 1) for out in outs):
            yield offset + low


def _base_arm64(words: list[int], register: int) -> int | None:
    """How far a register is past the first argument: `add x, x, #n, lsl #12` reaches what a load cannot."""
    ours = _copies_arm64(words, 0)
    for word in reversed(words[-BETWEEN_WORDS:]):
        if word & 0xFF80001F == 0x91000000 | register and word >> 5 & 31 in ours:
            return (word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0)
    return 0 if register in ours else None


def _copies_arm64(words: list[int], argument: int) -> set[int]:
    moves = [word for word in words if word & 0xFFFFFFE0 == 0xAA0003E0 | argument << 16]  # mov x, xN
    return {argument, *(word & 31 for word in moves)}
