"""What a chain of BPF functions needs of the stack fits 512 bytes: older kernels, and arm64, have no more.

The kernel that compiles and tests this may give every function a stack of its own and never complain.
"""

from __future__ import annotations

import struct
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

MOST_BYTES, GRAIN_BYTES, FRAME_POINTER = 512, 32, 10
LOAD, STORE, STORE_VALUE = 1, 3, 2
MOVE, ADD_VALUE, CALL, LONG_LOAD = 0xBF, 0x07, 0x85, 0x18
FUNCTION_CALL, FUNCTION_ADDRESS = 1, (0, 4)
OBJECTS = sorted(
    str(each)
    for each in resources.files("ingero.native").joinpath("bpf").iterdir()
    if not each.name.startswith("layout.")  # types alone
)
Place = tuple[int, int]  # section, offset


class Function(NamedTuple):
    name: str
    stack_bytes: int
    calls: set[Place]


def functions_of(path: str) -> dict[Place, Function]:
    with Path(path).open("rb") as file:
        elf = ELFFile(file)
        symbols, sections = elf.get_section_by_name(".symtab"), list(elf.iter_sections())
        named = {
            (each["st_shndx"], each["st_value"]): each
            for each in symbols.iter_symbols()
            if each["st_info"]["type"] == "STT_FUNC"
        }
        points = {
            (section["sh_info"], each["r_offset"]): symbols.get_symbol(each["r_info_sym"])
            for section in sections
            if isinstance(section, RelocationSection)
            for each in section.iter_relocations()
        }
        return {
            place: _read(symbol.name, sections[place[0]].data(), place, symbol["st_size"], points)
            for place, symbol in named.items()
        }


def _read(name: str, code: bytes, place: Place, size: int, points: dict) -> Function:
    section, start = place
    deepest, calls, before = 0, set(), (0, 0)
    for at in range(start, start + size, 8):
        opcode, registers, offset, value = struct.unpack_from("<BBhi", code, at)
        target, source = registers & 15, registers >> 4
        kind, pointed = opcode & 7, points.get((section, at))
        if (kind == LOAD and source == FRAME_POINTER) or (
            kind in (STORE, STORE_VALUE) and target == FRAME_POINTER
        ):
            deepest = max(deepest, -offset)
        if opcode == ADD_VALUE and before == (MOVE, FRAME_POINTER):
            deepest = max(deepest, -value)
        if opcode == CALL and source == FUNCTION_CALL:
            calls.add(_pointed(pointed, (value + 1) * 8) if pointed else (section, at + 8 + value * 8))
        if opcode == LONG_LOAD and source in FUNCTION_ADDRESS and pointed:
            calls.add(_pointed(pointed, value))
        before = (opcode, source)
    return Function(name, deepest, calls)


def _pointed(symbol, within: int) -> Place:
    return symbol["st_shndx"], within if symbol["st_info"]["type"] == "STT_SECTION" else symbol["st_value"]


# Asked for here, and run by the thread afterwards, on a stack of its own.
LATER = {"walk_wait", "walk_sample"}


def deepest_chain(
    functions: dict[Place, Function], place: Place, above: tuple[Place, ...] = ()
) -> tuple[int, list]:
    if place not in functions or place in above:
        return 0, []
    own = functions[place]
    if above and own.name in LATER:
        return 0, []
    beneath = max((deepest_chain(functions, each, (*above, place)) for each in own.calls), default=(0, []))
    needed = max(-(-own.stack_bytes // GRAIN_BYTES), 1) * GRAIN_BYTES
    return needed + beneath[0], [(own.name, own.stack_bytes), *beneath[1]]


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: Path(path).name.removesuffix(".bpf.o"))
def test_no_chain_of_functions_needs_more_stack_than_old_kernels_have(path: str) -> None:
    functions = functions_of(path)
    assert functions
    too_deep = [
        chain
        for needed, chain in (deepest_chain(functions, place) for place in functions)
        if needed > MOST_BYTES
    ]
    assert too_deep == []
