"""Addresses of real processes, named from the files they really run."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ingero.capture.stacks import interleave
from ingero.discover import code_files, native_symbols
from ingero.discover.code_files import CodeFiles, FunctionTable, file_key
from ingero.discover.libraries import parse_executable, read_maps
from ingero.discover.native_symbols import NativeSymbols
from ingero.discover.processes import read_stat
from ingero.model.stack import Frame, NativeFrame, PythonFrame
from ingero.native import elf_symbols
from ingero.native.elf import find_symbols

from .conftest import LOAD, Build, Start

SOURCE = Path(__file__).parent / "stack_program.cpp"
HELLO = "int hello_from_here(int x) { return x + 1; } int other(int x) { return x + 2; }"

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="map_files needs root")


class SlowClock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1_000_000
        return self.ns


def compile_shop(target: Path, *flags: str) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    whole = ["-O2", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-inline", "-fno-ipa-sra"]
    subprocess.run([compiler, *whole, *flags, "-o", target, SOURCE], check=True, capture_output=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    compile_shop(tmp_path / "shop")
    return tmp_path / "shop"


def begin(program: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    return child, [int(word, 16) for word in child.stdout.readline().split()]


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()


def load(start: Start, *paths: Path) -> int:
    return start(sys.executable, "-c", LOAD, *map(str, paths)).pid


def address_of(pid: int, path: Path, symbol: str, step: int = 0, copy: Path | None = None) -> int:
    """Where a function is in a process, from its mappings as they are now; copy: the file to be read here."""
    place = find_symbols(copy or path, [symbol])[symbol].offset + step
    for each in read_maps(pid):
        if each.executable and each.path == str(path) and 0 <= place - each.offset < each.end - each.start:
            return each.start + place - each.offset
    raise AssertionError(f"{path} is not mapped")


SHOPPING = ["shop::Basket<shop::Item>::walk(int)"] * 3 + ["begin_shopping", "main"]


def test_a_cpp_stack_is_named_with_templates_and_namespaces(program: Path) -> None:
    child, addresses = begin(program)
    frames = NativeSymbols().resolve(child.pid, addresses)
    end(child)
    assert [frame.function for frame in frames] == SHOPPING
    assert {frame.module for frame in frames} == {str(program)}


def test_names_and_offsets_are_those_of_addr2line(program: Path) -> None:
    tool = shutil.which("addr2line")
    if tool is None:
        pytest.skip("no addr2line here")
    child, addresses = begin(program)
    frames = NativeSymbols().resolve(child.pid, addresses)
    end(child)
    command = [tool, "-f", "-C", "-e", program, *(hex(frame.offset) for frame in frames)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[::2]
    assert said == [frame.function for frame in frames]


@pytest.mark.parametrize("flags", [("-no-pie",), ("-static", "-no-pie")], ids=["fixed", "static"])
def test_a_program_at_a_fixed_address_is_named_too(program: Path, flags: tuple[str, ...]) -> None:
    compile_shop(program, *flags)
    child, addresses = begin(program)
    frames = NativeSymbols().resolve(child.pid, addresses)
    end(child)
    assert [frame.function for frame in frames] == SHOPPING


def test_a_process_that_has_ended_is_still_told_about(program: Path) -> None:
    symbols = NativeSymbols()
    child, addresses = begin(program)
    symbols.look([child.pid])
    end(child)
    assert [frame.function for frame in symbols.resolve(child.pid, addresses)] == SHOPPING


def test_a_process_that_was_never_looked_at_has_no_frames_and_this_is_counted(program: Path) -> None:
    symbols = NativeSymbols()
    child, addresses = begin(program)
    end(child)
    assert symbols.resolve(child.pid, addresses) == []
    assert symbols.missed == {"process gone": 5}


def test_after_its_end_another_file_by_the_same_name_is_not_taken_for_it(program: Path) -> None:
    symbols = NativeSymbols()
    child, addresses = begin(program)
    symbols.look([child.pid])
    end(child)
    Path(shutil.copy(program, program.with_name("other"))).replace(program)
    frames = symbols.resolve(child.pid, addresses)
    assert all(frame.function == f"shop+0x{frame.offset:x}" for frame in frames)
    assert "another file" in symbols.unread[str(program)]


def test_the_number_of_a_process_does_not_stand_for_the_next_one(program: Path) -> None:
    symbols = NativeSymbols()
    child, addresses = begin(program)
    stat = read_stat(child.pid)
    assert stat is not None
    assert len(symbols.resolve(child.pid, addresses, stat.start_ns)) == 5
    assert symbols.resolve(child.pid, addresses, stat.start_ns + 10**10) == []
    end(child)


def test_a_forgotten_process_is_not_known_any_more(program: Path) -> None:
    symbols = NativeSymbols()
    child, addresses = begin(program)
    symbols.look([child.pid])
    end(child)
    symbols.forget([child.pid])
    assert symbols.resolve(child.pid, addresses) == []


@pytest.mark.parametrize("told", [True, False], ids=["told of", "met"])
def test_a_library_loaded_later_is_found(build: Build, tmp_path: Path, told: bool) -> None:
    clock = SlowClock()
    library, symbols = build(tmp_path / "libhello.so", HELLO), NativeSymbols(clock)
    symbols.look([os.getpid()])
    loaded = ctypes.CDLL(str(library))
    address = ctypes.cast(loaded.hello_from_here, ctypes.c_void_p).value or 0
    if told:
        symbols.look([os.getpid()])
    clock.ns += 6_000_000 if told else 20_000_000
    assert [frame.function for frame in symbols.resolve(os.getpid(), [address])] == ["hello_from_here"]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Readings of a process's mappings so far."""
    made: list[object] = []
    read = native_symbols.read_space
    monkeypatch.setattr(native_symbols, "read_space", lambda *each: made.append(each) or read(*each))
    return made


def test_mappings_are_not_read_again_and_again(start: Start, reads: list[object]) -> None:
    clock = SlowClock()
    symbols, pid = NativeSymbols(clock), start().pid
    for _ in range(15):
        assert symbols.resolve(pid, [4096]) == []
    assert len(reads) == 1  # it took a millisecond, so the next comes twenty later
    clock.ns += 20_000_000
    assert symbols.resolve(pid, [4096]) == symbols.resolve(pid, [4096]) == []
    assert len(reads) == 2


def test_addresses_that_are_never_code_have_mappings_read_less_and_less(
    start: Start, reads: list[object]
) -> None:
    clock = SlowClock()
    symbols, pid = NativeSymbols(clock), start().pid
    for _ in range(200):
        clock.ns += 20_000_000
        assert symbols.resolve(pid, [4096]) == []
    assert len(reads) < 12
    symbols.mapped([pid])  # something new: it may be there now
    symbols.resolve(pid, [4096])
    before = len(reads)
    clock.ns += 41_000_000
    symbols.resolve(pid, [4096])
    assert len(reads) == before + 1


@needs_root
def test_deleted_and_replaced_libraries_are_named_from_what_is_mapped(
    start: Start, build: Build, tmp_path: Path
) -> None:
    path = build(tmp_path / "libhello.so", HELLO)
    kept = Path(shutil.copy(path, tmp_path / "kept.so"))
    pid = load(start, path)
    address = address_of(pid, path, "hello_from_here", 2)
    path.unlink()
    assert NativeSymbols().resolve(pid, [address])[0].function == "hello_from_here"
    build(path, "int wrong(int x) { return x; } int wrong_too(int x) { return x * x; }")
    frame = NativeSymbols().resolve(pid, [address])[0]
    assert frame == NativeFrame(
        "hello_from_here", str(path), find_symbols(kept, ["hello_from_here"])["hello_from_here"].value + 2
    )


@needs_root
def test_a_file_only_another_mount_namespace_has_is_named(build: Build, tmp_path: Path, start: Start) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    library, inside = build(tmp_path / "libhello.so", HELLO), tmp_path / "inside"
    inside.mkdir()
    script = (
        f"mount -t tmpfs none {inside} && cp {library} {inside}/libhello.so && "
        f"exec {sys.executable} -c '{LOAD}' {inside}/libhello.so"
    )
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("mount namespaces cannot be made here")
    child = start("unshare", "-m", "sh", "-c", script)
    address = address_of(child.pid, inside / "libhello.so", "hello_from_here", copy=library)
    assert not (inside / "libhello.so").exists()
    (frame,) = NativeSymbols().resolve(child.pid, [address])
    assert (frame.function, frame.module) == ("hello_from_here", f"{inside}/libhello.so")


def test_a_return_address_belongs_to_the_call_before_it(start: Start, build: Build, tmp_path: Path) -> None:
    path = build(tmp_path / "libhello.so", HELLO)
    pid = load(start, path)
    begins = address_of(pid, path, "other")
    inner, outer = NativeSymbols().resolve(pid, [begins, begins])
    assert inner.function == "other"
    assert outer.function != "other"


def test_the_stack_ends_where_there_is_no_code(program: Path) -> None:
    symbols = NativeSymbols()
    child, addresses = begin(program)
    stack = next(
        each for each in Path(f"/proc/{child.pid}/maps").read_text().splitlines() if "[stack]" in each
    )
    data = int(stack.split("-")[0], 16) + 64
    for wrong in (0, 1, data, 1 << 47, (1 << 64) - 1):
        assert len(symbols.resolve(child.pid, [*addresses[:2], wrong, *addresses[2:]])) == 2
    end(child)
    assert symbols.missed["no code there"] == 5


def test_an_address_with_no_symbol_is_module_and_offset(start: Start, build: Build, tmp_path: Path) -> None:
    path = build(
        tmp_path / "libbare.so", "static int hidden(int x) { return x; } int (*p)(int) = hidden;", "-s"
    )
    pid = load(start, path)
    mapped = next(each for each in read_maps(pid) if each.executable and each.path == str(path))
    address = mapped.end - 1
    (frame,) = NativeSymbols().resolve(pid, [address])
    assert frame.function == f"libbare.so+0x{mapped.offset + address - mapped.start:x}"


def test_code_without_a_file_is_named_as_such(start: Start) -> None:
    script = (
        "import mmap, sys; alone = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS;"
        "private = mmap.mmap(-1, 4096, flags=alone, prot=7);"
        "shared = mmap.mmap(-1, 4096, prot=7); print(1, flush=True); sys.stdin.read()"
    )
    pid = start(sys.executable, "-c", script).pid
    by_path = {each.path: each for each in parse_executable(Path(f"/proc/{pid}/maps").read_bytes())}
    places = [by_path[path].start + 3 for path in ("[vdso]", "", "/dev/zero")]
    symbols = NativeSymbols()
    frames = symbols.resolve(pid, places)
    made = "[code made at run time]"
    assert [frame.function for frame in frames] == ["[vdso]", made, made]
    assert not symbols.unread


def test_what_is_no_elf_file_is_module_and_offset_and_said(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "odd\x1bname"
    path.write_bytes(b"\x7fELF" + b"\xff" * 8188)
    script = (
        "import mmap, sys; f = open(sys.argv[1], 'rb');"
        "m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC);"
        "print(1, flush=True); sys.stdin.read()"
    )
    pid = start(sys.executable, "-c", script, str(path)).pid
    mapped = next(each for each in read_maps(pid) if each.path == str(path))
    symbols = NativeSymbols()
    (frame,) = symbols.resolve(pid, [mapped.start + 20])
    assert frame.function == "odd\ufffdname+0x14"
    assert "64-bit" in symbols.unread[frame.module]


def test_tables_too_large_degrade_to_offsets_and_say_so(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elf_symbols, "MAX_SYMBOL_BYTES", 100)
    symbols = NativeSymbols()
    child, addresses = begin(program)
    frames = symbols.resolve(child.pid, addresses)
    end(child)
    assert len(frames) == 5
    assert all(frame.function.startswith("shop+0x") for frame in frames)
    assert "symbols take" in symbols.unread[str(program)]


def test_equal_files_share_a_table_and_the_least_used_goes_first(build: Build, tmp_path: Path) -> None:
    first = build(tmp_path / "one.so", HELLO)
    paths = [first, Path(shutil.copy(first, tmp_path / "same.so"))]
    paths += [build(tmp_path / f"{n}.so", f"int f{n}(void) {{ return {n}; }}") for n in range(4)]

    def read(files: CodeFiles, path: Path) -> FunctionTable:
        table = files.table(file_key(path.stat()), [str(path)])
        assert not isinstance(table, str)
        return table

    files = CodeFiles()
    tables = [read(files, path) for path in paths]
    assert tables[0] is tables[1]
    assert len({id(table) for table in tables}) == 5
    small = CodeFiles(max_bytes=2 * tables[0].bytes + 10)
    for path in paths:
        read(small, path)
    assert small.held_bytes() <= 2 * tables[0].bytes + 10
    assert len(read(small, paths[0])) == len(tables[0])  # read again


def test_a_claimed_build_id_does_not_lend_its_names_to_others(build: Build, tmp_path: Path) -> None:
    same_id = "-Wl,--build-id=0x1234567890abcdef1234567890abcdef12345678"
    one, two = (
        build(tmp_path / f"{n}.so", f"int {n}(int x) {{ return x; }}", same_id) for n in ("good", "evil")
    )
    files = CodeFiles()
    for path, name in ((two, "evil"), (one, "good")):
        table = files.table(file_key(path.stat()), [str(path)])
        assert not isinstance(table, str)
        row = table.find(np.array([find_symbols(path, [name])[name].value], np.uint64))[0]
        assert table.raw_names([int(row)]) == [name.encode()]


def test_names_left_in_a_file_come_from_that_very_file(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal files share a table. What one becomes is nothing to the other, and none stays open."""
    monkeypatch.setattr(elf_symbols, "HELD_BYTES", 0)
    one = build(tmp_path / "one.so", HELLO)
    two = Path(shutil.copy2(one, tmp_path / "two.so"))
    keys = [file_key(path.stat()) for path in (one, two)]
    files, opened = CodeFiles(), len(list(Path("/proc/self/fd").iterdir()))
    tables = [files.table(key, [str(path)]) for key, path in zip(keys, (one, two), strict=True)]
    assert tables[0] is tables[1]
    table = tables[0]
    assert not isinstance(table, str)
    rows = range(len(table))
    names = files.raw_names(keys[1], [str(two)], table, rows)
    assert b"hello_from_here" in names
    one.write_bytes(one.read_bytes().replace(b"hello_from_here", b"attacker_text!!"))
    assert set(files.raw_names(keys[0], [str(one)], table, rows)) == {b""}
    assert files.raw_names(keys[1], [str(one), str(two)], table, rows) == names
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_tables_are_bounded_in_number(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_files, "MAX_TABLES", 3)
    files = CodeFiles()
    for number in range(6):
        path = build(tmp_path / f"{number}.so", f"int f{number}(void) {{ return {number}; }}")
        assert not isinstance(files.table(file_key(path.stat()), [str(path)]), str)
    assert len(files._tables) == 3


def test_the_evaluator_of_a_real_interpreter_is_the_place_for_python_frames() -> None:
    evaluator = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p).value or 0
    native = NativeSymbols().resolve(os.getpid(), [evaluator, evaluator + 200])
    frames = [Frame("python", name, "train.py", 1) for name in ("forward", "main")]
    assert interleave(native, [PythonFrame(frame, True) for frame in frames]) == frames


def test_executable_memory_is_read_whatever_is_behind_it() -> None:
    raw = (
        b"00400000-00401000 r--p 00000000 08:01 12 /bin/x\n"
        b"00401000-00402000 r-xp 00001000 08:01 12 /bin/x y (deleted)\n"
        b"7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n"
        b"7ffe00000000-7ffe00001000 r-xp 00000000 00:00 0 [vdso]\n"
        b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"
        b"nonsense r-xp\n"
    )
    found = parse_executable(raw)
    assert [each.path for each in found] == ["/bin/x y", "", "[vdso]", "[vsyscall]"]
    assert found[0].deleted
    assert (found[0].start, found[0].end, found[0].offset) == (0x401000, 0x402000, 0x1000)
