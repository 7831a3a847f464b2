"""The ELF reader against pyelftools, the compiler and files made to hurt it."""

from __future__ import annotations

import os
import resource
import socket
import struct
import sys
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero.errors import FileFormatError
from ingero.native.elf import EM_X86_64, ElfFile, find_symbols
from ingero.native.instructions import probe_site

from .conftest import Compile


def mapped_libraries() -> list[Path]:
    """A few real libraries: those this interpreter has mapped, and itself."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if ".so" in line}
    small = [
        Path(path) for path in sorted(paths) if Path(path).is_file() and Path(path).stat().st_size < 4 << 20
    ]
    return [*small[:8], Path(sys.executable).resolve()]


def reference_functions(path: Path) -> set[tuple[str, int, int]]:
    found = set()
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if isinstance(section, SymbolTableSection):
                for symbol in section.iter_symbols():
                    defined = symbol["st_shndx"] != "SHN_UNDEF" and symbol.name
                    if symbol["st_info"]["type"] == "STT_FUNC" and defined:
                        name = symbol.name.partition("@")[0]
                        found.add((name, symbol["st_value"], symbol["st_size"]))
    return found


def read_functions(path: Path) -> set[tuple[str, int, int]]:
    with ElfFile(path) as elf:
        table = elf.functions
        symbols = [table.symbol(index) for index in range(len(table))]
    return {(symbol.name, symbol.value, symbol.size) for symbol in symbols}


@pytest.mark.parametrize("path", mapped_libraries(), ids=lambda path: path.name)
def test_functions_are_those_pyelftools_finds(path: Path) -> None:
    assert read_functions(path) == reference_functions(path)


@pytest.mark.parametrize("path", mapped_libraries()[:4], ids=lambda path: path.name)
def test_sections_segments_machine_and_soname_agree_with_pyelftools(path: Path) -> None:
    with path.open("rb") as file, ElfFile(path) as elf:
        other = ELFFile(file)
        assert [section.name for section in elf.sections] == [each.name for each in other.iter_sections()]
        loads = [each for each in other.iter_segments() if each["p_type"] == "PT_LOAD"]
        assert [each.offset for each in elf.segments] == [each["p_offset"] for each in loads]
        assert (elf.machine == EM_X86_64) == (other["e_machine"] == "EM_X86_64")
        tags = other.get_section_by_name(".dynamic")
        names = [tag.soname for tag in tags.iter_tags() if tag.entry.d_tag == "DT_SONAME"]
        assert elf.soname == (names[0] if names else None)


def test_the_real_runtime_has_its_functions_at_cheap_sites(cudart: Path) -> None:
    assert read_functions(cudart) == reference_functions(cudart)
    found = find_symbols(cudart, ["cudaLaunchKernel", "cudaMalloc", "cudaMemcpyAsync", "cudaNothing"])
    assert set(found) == {"cudaLaunchKernel", "cudaMalloc", "cudaMemcpyAsync"}
    with ElfFile(cudart) as elf:
        assert all(probe_site(elf.read(each.offset, 16), elf.machine).cheap for each in found.values())


def test_the_file_offset_leads_to_the_code(compile_library: Compile) -> None:
    path = compile_library("int one(void) { return 0x1234567; }", "-O1", "-fcf-protection=none")
    symbol = find_symbols(path, ["one"])["one"]
    assert path.read_bytes()[symbol.offset :][:5] == bytes.fromhex("b867452301")  # mov $0x1234567, %eax


def test_a_function_compiled_with_endbr64_is_probed_behind_it(compile_library: Compile) -> None:
    source = "int f(int); int outer(int a) { return f(a) + f(a + 1); }"
    path = compile_library(source, "-O1", "-fcf-protection=full", "-Wl,--unresolved-symbols=ignore-all")
    symbol = find_symbols(path, ["outer"])["outer"]
    site = probe_site(path.read_bytes()[symbol.offset :][:32], EM_X86_64)
    assert (site.offset, site.cheap) == (4, True)


def test_aliases_are_all_found_and_share_an_offset(compile_library: Compile) -> None:
    path = compile_library('int one(void) { return 1; } int two(void) __attribute__((alias("one")));')
    found = find_symbols(path, ["one", "two"])
    assert found["one"].offset == found["two"].offset


def test_of_several_versions_the_default_one_is_found(compile_library: Compile) -> None:
    source = """
        int old_answer(void) { return 1; }
        int new_answer(void) { return 2; }
        __asm__(".symver old_answer, answer@V1");
        __asm__(".symver new_answer, answer@@V2");
    """
    script = {"v.map": "V1 { answer; }; V2 { answer; } V1;"}
    for strip in ((), ("-s",)):
        path = compile_library(source, "-Wl,--version-script=v.map", *strip, files=script)
        found = find_symbols(path, ["answer"])
        reference = {size for name, _, size in reference_functions(path) if name == "answer"}
        assert reference
        with ElfFile(path) as elf:
            code = elf.read(found["answer"].offset, 16)
        assert b"\xb8\x02\x00\x00\x00" in code


def test_imported_functions_are_not_defined_here(compile_library: Compile) -> None:
    source = "int cudaMalloc(void **, unsigned long); int mine(void) { return cudaMalloc(0, 0); }"
    path = compile_library(source, "-Wl,--unresolved-symbols=ignore-all")
    assert set(find_symbols(path, ["cudaMalloc", "mine"])) == {"mine"}


def test_short_names_and_names_that_share_a_beginning_are_told_apart(compile_library: Compile) -> None:
    path = compile_library(
        "".join(f"int {name}(void) {{ return 1; }}" for name in ("a", "ab", "abcdefgh", "abcdefghi"))
    )
    assert set(find_symbols(path, ["a", "abcdefghi", "abc", ""])) == {"a", "abcdefghi"}


def test_resolvers_of_indirect_functions_are_not_offered(compile_library: Compile) -> None:
    source = """
        static int real(void) { return 1; }
        static void *pick(void) { return real; }
        int chosen(void) __attribute__((ifunc("pick")));
    """
    assert "chosen" not in find_symbols(compile_library(source), ["chosen"])


def test_an_address_inside_a_function_is_named(compile_library: Compile) -> None:
    path = compile_library("int one(void) { return 1; }")
    with ElfFile(path) as elf:
        symbol = find_symbols(elf.fd, ["one"])["one"]
        covering = elf.functions.covering(symbol.value + 1)
        assert covering is not None
        assert covering.name == "one"
        assert elf.functions.covering(1 << 62) is None


def test_a_descriptor_stays_open_for_its_owner(compile_library: Compile) -> None:
    fd = os.open(compile_library("int one(void) { return 1; }"), os.O_RDONLY)
    assert "one" in find_symbols(fd, ["one"])
    os.fstat(fd)
    os.close(fd)


def test_300_names_are_found_among_35000_functions_quickly(compile_library: Compile) -> None:
    define = ".globl {0}; .type {0}, @function; {0}: ret; .size {0}, 1;"
    rows = (define.format(f"_ZN4llvm8function{number}Ev") for number in range(35_000))
    path = compile_library('__asm__("' + "\\n".join(rows) + '");')
    names = [f"_ZN4llvm8function{number}Ev" for number in range(0, 30_000, 100)]
    started = time.perf_counter()
    assert len(find_symbols(path, names)) == 300
    assert time.perf_counter() - started < 1.0  # some 50 ms here; ten-fold slack for busy machines


def hostile_places(folder: Path) -> list[Path]:
    fifo, pipe, empty, text, loop = (folder / name for name in ("fifo", "sock", "empty", "text", "loop"))
    os.mkfifo(fifo)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(pipe))
    listener.close()
    empty.touch()
    text.write_text("#!/bin/sh\n" * 100)
    loop.symlink_to(loop)
    return [
        fifo,
        pipe,
        empty,
        text,
        loop,
        folder,
        folder / "missing",
        Path("/dev/zero"),
        Path("/proc/self/mem"),
    ]


def test_what_is_not_an_elf_file_is_refused_at_once(tmp_path: Path) -> None:
    for place in hostile_places(tmp_path):
        with pytest.raises(FileFormatError):
            find_symbols(place, ["one"])
    with pytest.raises(FileFormatError):
        find_symbols("with\0nul", ["one"])
    with pytest.raises(FileFormatError):
        find_symbols(987654, ["one"])


@pytest.mark.parametrize("ident", [b"\x01\x01", b"\x02\x02"], ids=("32-bit", "big-endian"))
def test_other_classes_and_byte_orders_are_refused(tmp_path: Path, ident: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"\x7fELF" + ident + b"\x01" + bytes(200))
    with pytest.raises(FileFormatError, match="64-bit"):
        ElfFile(path)


def test_a_sparse_giant_with_absurd_counts_allocates_nothing(
    tmp_path: Path, compile_library: Compile
) -> None:
    data = bytearray(compile_library("int one(void) { return 1; }").read_bytes())
    shoff = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<H", data, 60, 0)  # the number of sections now is the size of section 0
    struct.pack_into("<Q", data, shoff + 32, 1 << 58)
    path = tmp_path / "giant"
    path.write_bytes(data)
    os.truncate(path, 1 << 40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileFormatError):
        find_symbols(path, ["one"])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_a_file_that_shrinks_under_the_reader_is_an_error_not_a_crash(compile_library: Compile) -> None:
    path = compile_library("int one(void) { return 1; }")
    with ElfFile(path) as elf:
        os.truncate(path, 100)
        with pytest.raises(FileFormatError):
            _ = elf.functions


SAMPLE_PATH = min(mapped_libraries(), key=lambda path: path.stat().st_size)
SAMPLE = SAMPLE_PATH.read_bytes()
TABLES = (".dynsym", ".dynstr", ".dynamic", ".gnu.version", ".note.gnu.build-id")
INTERESTING = st.sampled_from((0, 1, 0x7F, 0xFF, 0xFFFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1, len(SAMPLE)))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real library, cut short or with headers and tables overwritten."""
    data = bytearray(SAMPLE)
    shoff, shnum = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    with ElfFile(SAMPLE_PATH) as elf:
        tables = [(each.offset, each.size) for each in elf.sections if each.name in TABLES]
    tables += [(0, 64), (64, 800), (shoff, shnum * 64)]
    for _ in range(draw(st.integers(1, 6))):
        start, length = draw(st.sampled_from(tables))
        at = start + draw(st.integers(0, max(length // 4 - 2, 0))) * 4
        width = draw(st.sampled_from((1, 2, 4, 8)))
        value = draw(INTERESTING | st.integers(0, (1 << 64) - 1)) & (1 << 8 * width) - 1
        data[at : at + width] = value.to_bytes(width, "little")
    return bytes(data[: draw(st.sampled_from((len(data), len(data), len(data) // 2, 63, 64, 200)))])


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=damaged())
def test_damage_never_does_more_than_a_format_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(data)
    try:
        with ElfFile(path) as elf:
            _ = elf.segments
            for read in (
                lambda: elf.soname,
                lambda: elf.run_paths,
                lambda: elf.sections,
                lambda: elf.functions,
                lambda: elf.objects,
            ):
                try:
                    read()
                except FileFormatError:
                    continue
            for index in range(min(len(elf.functions), 50)):
                assert elf.functions.symbol(index).offset < len(data)
    except FileFormatError:
        pass
