"""Functions by address, against nm, the compiler and damaged files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero.discover.code_files import FunctionTable, functions_of
from ingero.errors import FileFormatError
from ingero.native import elf_symbols
from ingero.native.elf import ElfFile, find_symbols

from .conftest import Compile


def table_of(path: Path) -> FunctionTable:
    with ElfFile(path) as elf:
        return functions_of(elf)


def named(table: FunctionTable, *addresses: int) -> list[str | None]:
    rows = table.find(np.array(addresses, np.uint64)).tolist()
    return [table.raw_names([row])[0].decode() if row >= 0 else None for row in rows]


def symbols_by_nm(path: Path, *flags: str) -> dict[int, set[str]]:
    listed = subprocess.run(["nm", *flags, "-S", path], check=True, capture_output=True, text=True).stdout
    found: dict[int, set[str]] = {}
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[2] in "tTwW":
            for address in (int(fields[0], 16), int(fields[0], 16) + int(fields[1], 16) - 1):
                found.setdefault(address, set()).add(fields[3].partition("@")[0])
    return found


def test_first_and_last_byte_of_every_function_are_its_own_as_nm_has_it(compile_library: Compile) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm here")
    source = "".join(f"int f{at}(int x) {{ return x * {at}; }}" for at in range(200))
    for path, flags in ((compile_library(source), ()), (Path(sys.executable).resolve(), ("-D",))):
        expected = symbols_by_nm(path, *flags)
        for address, name in zip(expected, named(table_of(path), *expected), strict=True):
            assert name in expected[address]


def test_names_of_large_files_stay_in_them_and_are_the_same(
    compile_library: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compile_library("".join(f"int f{at}(int x) {{ return x * {at}; }}" for at in range(200)))
    held = table_of(path)
    monkeypatch.setattr(elf_symbols, "HELD_BYTES", 0)
    left, rows = table_of(path), range(len(held))
    assert left.bytes < held.bytes
    assert left.same_as(table_of(path))
    with path.open("rb") as file:
        assert left.raw_names(rows, file.fileno()) == held.raw_names(rows)
    assert set(left.raw_names(rows)) == {b""}  # without the file


def test_names_that_stay_in_the_file_are_found_wherever_a_piece_of_it_ends(
    compile_library: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"f{'x' * (at % 37)}{at}" for at in range(300)]
    path = compile_library("".join(f"int {name}(int x) {{ return x; }}" for name in names))
    monkeypatch.setattr(elf_symbols, "HELD_BYTES", 0)
    for piece in (16, 64, 1000, 1 << 20):
        monkeypatch.setattr(elf_symbols, "PIECE_BYTES", piece)
        assert set(find_symbols(path, names)) == set(names)


def test_a_file_cut_short_has_no_names_and_breaks_nothing(
    compile_library: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compile_library("int f(int x) { return x; }")
    monkeypatch.setattr(elf_symbols, "HELD_BYTES", 0)
    table = table_of(path)
    os.truncate(path, 0)
    with path.open("rb") as file:
        assert set(table.raw_names(range(len(table)), file.fileno())) == {b""}


def test_bytes_between_functions_are_nobodys(compile_library: Compile) -> None:
    path = compile_library(
        'asm(".globl a\\n.type a, @function\\na: nop\\nret\\n.size a, 2\\n.skip 64\\n'
        '.globl b\\n.type b, @function\\nb: ret\\n.size b, 1\\n");'
    )
    table = table_of(path)
    with ElfFile(path) as elf:
        at = {symbol.name: symbol.value for symbol in map(elf.functions.symbol, range(len(elf.functions)))}
    assert named(
        table, at["a"] - 1, at["a"], at["a"] + 1, at["a"] + 2, at["b"] - 1, at["b"], at["b"] + 1
    ) == [
        named(table, at["a"] - 1)[0],
        "a",
        "a",
        None,
        None,
        "b",
        named(table, at["b"] + 1)[0],
    ]


def test_a_function_without_a_size_reaches_to_the_next_but_not_into_another_section(
    compile_library: Compile,
) -> None:
    path = compile_library(
        'asm(".section .text.one, \\"ax\\"\\n.globl bare\\n.type bare, @function\\nbare: .skip 16, 0x90\\n'
        ".globl next\\n.type next, @function\\nnext: ret\\n.size next, 1\\n"
        '.section .other, \\"ax\\"\\n.globl last\\n.type last, @function\\nlast: .skip 8, 0x90\\n'
        '.section .third, \\"ax\\"\\n.skip 64, 0x90\\n.text\\n");'
    )
    table = table_of(path)
    with ElfFile(path) as elf:
        at = {symbol.name: symbol.value for symbol in map(elf.functions.symbol, range(len(elf.functions)))}
        third = next(each for each in elf.sections if each.name == ".third")
    assert named(table, at["bare"], at["bare"] + 15, at["next"]) == ["bare", "bare", "next"]
    assert named(table, at["last"] + 7, third.address, third.address + 63) == ["last", None, None]


def test_an_address_behind_a_nested_symbol_belongs_to_the_outer_one(compile_library: Compile) -> None:
    path = compile_library(
        'asm(".globl outer\\n.type outer, @function\\nouter: .skip 8, 0x90\\n'
        ".globl inner\\n.type inner, @function\\ninner: .skip 4, 0x90\\n.size inner, 4\\n"
        '.skip 8, 0x90\\n.size outer, 20\\n");'
    )
    with ElfFile(path) as elf:
        at = {symbol.name: symbol.value for symbol in map(elf.functions.symbol, range(len(elf.functions)))}
    assert named(table_of(path), *(at["outer"] + step for step in (0, 7, 8, 11, 12, 19))) == [
        "outer",
        "outer",
        "inner",
        "inner",
        "outer",
        "outer",
    ]


def test_of_several_names_the_one_people_know_is_taken(compile_library: Compile) -> None:
    path = compile_library(
        'int __read_it(void) { return 1; } int read_it(void) __attribute__((alias("__read_it")));'
        'int _read_it(void) __attribute__((alias("__read_it")));'
    )
    with ElfFile(path) as elf:
        (value,) = {
            s.value for s in map(elf.functions.symbol, range(len(elf.functions))) if "read_it" in s.name
        }
    assert named(table_of(path), value) == ["read_it"]


def test_places_in_the_file_become_addresses_even_where_the_two_differ(compile_library: Compile) -> None:
    path = compile_library("int f(void) { return 1; }", "-Wl,-Ttext-segment=0x7000000")
    table = table_of(path)
    with ElfFile(path) as elf:
        symbol = next(s for s in map(elf.functions.symbol, range(len(elf.functions))) if s.name == "f")
    assert symbol.value != symbol.offset
    assert table.addresses(np.array([symbol.offset], np.uint64)).tolist() == [symbol.value]


def test_a_file_without_symbols_names_nothing(compile_library: Compile) -> None:
    path = compile_library("static int f(void) { return 1; } int (*g)(void) = f;", "-s", "-nostdlib")
    table = table_of(path)
    assert len(table) == 0
    assert named(table, 0, 4096, 1 << 63) == [None, None, None]


def test_tables_too_large_are_refused_before_they_are_read(
    compile_library: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compile_library("int f(void) { return 1; }")
    monkeypatch.setattr(elf_symbols, "MAX_SYMBOL_BYTES", 100)
    with pytest.raises(FileFormatError, match="symbols take"):
        table_of(path)


def test_equal_tables_are_the_same_and_others_not(compile_library: Compile) -> None:
    one = table_of(compile_library("int f(void) { return 1; }", name="one.so"))
    assert one.same_as(table_of(compile_library("int f(void) { return 1; }", name="two.so")))
    assert not one.same_as(table_of(compile_library("int g(void) { return 1; }", name="three.so")))
    assert not one.same_as(table_of(compile_library("int f(void) { return 1; }", "-O2", name="four.so")))


@pytest.fixture
def small_library(compile_library: Compile) -> bytes:
    return compile_library("int f(void) { return 1; } int g(void) { return 2; }").read_bytes()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_gives_a_table_or_a_format_error(
    small_library: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "damaged.so"
    raw = bytearray(small_library)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(
            st.integers(0, 63) | st.integers(0, len(raw) - 1) | st.integers(len(raw) - 2500, len(raw) - 1)
        )
        raw[at] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        table = table_of(path)
    except FileFormatError:
        return
    addresses = np.array([0, 1, 4096, 4400, 1 << 40, (1 << 64) - 1], np.uint64)
    for row in table.find(table.addresses(addresses)).tolist():
        assert row == -1 or isinstance(table.raw_names([row])[0], bytes)
    assert table.same_as(table)
