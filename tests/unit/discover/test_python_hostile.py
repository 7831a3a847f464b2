"""Programs that claim to be Python and are not, or not yet: a reason, never a layout, a crash or a wait."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingero.discover import process_memory
from ingero.discover.process_memory import NotThereError, ProcessMemory, TooMuchError
from ingero.discover.python_layout import PythonFrames, layout_of
from ingero.discover.python_offsets import OFFSETS, STATED
from tests.pythons import HERE

from .conftest import WAIT, Build, Start

NO_ACCESS = 0  # PROT_NONE

HEAD = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#define AT(base, offset) (*(uint64_t *)((char *)(base) + (offset)))
uint64_t _PyRuntime[8192] = {1};
const unsigned long Py_Version = 0x03%02x01f0;
static uint64_t other[8192];
static void fill(void);
int main(void) { fill(); puts("1"); fflush(stdout); return getchar(); }
"""
AT = OFFSETS[12, False]
FILLS = {
    "noise": "for (int i = 0; i < 8192; i++) _PyRuntime[i] = (uint64_t)rand() << 32 | rand();",
    "unmapped": "for (int i = 0; i < 8192; i++) _PyRuntime[i] = 0x10000 + 4096 * i;",
    "kernel addresses": "for (int i = 0; i < 8192; i++) _PyRuntime[i] = ~0ull - 8 * i;",
    "all point to the start": "for (int i = 0; i < 8192; i++) _PyRuntime[i] = (uint64_t)_PyRuntime;",
    "each points to the next": """for (int i = 0; i < 8191; i++)
        _PyRuntime[i] = (uint64_t)(_PyRuntime + i + 1);""",
    "many that point back": """for (int i = 0; i < 8192; i++) {
        _PyRuntime[i] = (uint64_t)(other + i); other[i] = (uint64_t)(other + (i * 7 + 11) % 8000); }""",
    "thread states in a circle": f"""
        AT(_PyRuntime, {AT["runtime_interpreters"]}) = (uint64_t)other;
        AT(other, {AT["interpreter_next"]}) = 0;
        AT(other, {AT["interpreter_threads"]}) = (uint64_t)(other + 1024);
        AT(other + 1024, {AT["state_interpreter"]}) = (uint64_t)other;
        AT(other + 1024, {AT["state_next"]}) = (uint64_t)(other + 1024);""",
    "interpreters in a circle": f"""
        AT(_PyRuntime, {AT["runtime_interpreters"]}) = (uint64_t)other;
        AT(other, {AT["interpreter_next"]}) = (uint64_t)other;""",
    "frames in a circle": f"""
        uint64_t tp; __asm__("mov %%fs:0, %0" : "=r"(tp));
        uint64_t *state = other + 1024, *frame = other + 2048, *cframe = other + 3072;
        AT(_PyRuntime, {AT["runtime_interpreters"]}) = (uint64_t)other;
        AT(other, {AT["interpreter_next"]}) = 0;
        AT(other, {AT["interpreter_threads"]}) = (uint64_t)state;
        AT(state, {AT["state_interpreter"]}) = (uint64_t)other;
        AT(state, {AT["state_next"]}) = 0;
        AT(state, {AT["state_thread_id"]}) = tp;
        AT(state, {AT["state_frame"]}) = (uint64_t)cframe;
        AT(cframe, {AT["cframe_frame"]}) = (uint64_t)frame;
        AT(frame, {AT["frame_back"]}) = (uint64_t)frame;
        AT(frame, {AT["frame_mark"]}) = 3;
        AT(tp, 0x310) = 1; AT(tp, 0x318) = (uint64_t)state;""",
}


def claimed(build: Build, folder: Path, fill: str, minor: int = 12) -> str:
    source = HEAD % minor + "static void fill(void) {" + fill + "}"
    return str(build(folder / f"python3.{minor}", source, "-no-shared", "-Wl,--export-dynamic"))


def looked_at(pid: int) -> PythonFrames:
    found = layout_of(pid)
    assert found is not None
    assert found.layout is None
    assert found.why
    return found


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_what_only_claims_to_be_python_gives_a_reason(
    start: Start, build: Build, tmp_path: Path, fill: str
) -> None:
    for minor in (12,) if "AT(" in fill else (9, 12, 13):
        assert not looked_at(start(claimed(build, tmp_path, fill, minor)).pid).later


@pytest.mark.parametrize("value", ["~0ull", "0", "1", "65535", "1ull << 40"])
def test_offsets_that_the_runtime_states_are_not_believed(
    start: Start, build: Build, tmp_path: Path, value: str
) -> None:
    last = max(STATED[13].values()) // 8
    fill = f"""for (int i = 0; i < 8192; i++) _PyRuntime[i] = (uint64_t)(other + i % 64);
        memcpy(_PyRuntime, "xdebugpy", 8); _PyRuntime[1] = 0x030d01f0;
        for (int i = 2; i <= {last}; i++) _PyRuntime[i] = {value};"""
    looked_at(start(claimed(build, tmp_path, fill, 13)).pid)


def test_a_search_that_leads_everywhere_is_given_up(
    start: Start, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = ProcessMemory.read_up_to
    monkeypatch.setattr(ProcessMemory, "read_up_to", lambda *a: (reads.append(1), read(*a))[1])
    looked_at(start(claimed(build, tmp_path, FILLS["many that point back"])).pid)
    assert len(reads) <= 5 * (process_memory.MAX_READS + 1)


def test_a_runtime_that_is_empty_is_not_ready_yet(start: Start, build: Build, tmp_path: Path) -> None:
    found = looked_at(start(claimed(build, tmp_path, "memset(_PyRuntime, 0, sizeof _PyRuntime);")).pid)
    assert found.later


BEFORE_PYTHON = """
#include <stdio.h>
__attribute__((constructor)) static void wait(void) { puts("1"); fflush(stdout); getchar(); }
"""


@pytest.mark.parametrize("python", HERE)
def test_an_interpreter_that_starts_is_not_ready_yet_and_then_is(
    python: str, start: Start, build: Build, tmp_path: Path
) -> None:
    library = build(tmp_path / "before.so", BEFORE_PYTHON)
    child = start(python, "-c", WAIT, env={"LD_PRELOAD": str(library)})
    assert looked_at(child.pid).later
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    child.stdout.readline()
    found = layout_of(child.pid)
    assert found is not None
    assert found.layout is not None, found.why


@pytest.mark.parametrize("minor", [8, 15, 99])
def test_other_versions_are_not_tried(start: Start, build: Build, tmp_path: Path, minor: int) -> None:
    assert "only 3.9 to 3.14 are known" in looked_at(start(claimed(build, tmp_path, "", minor)).pid).why


def test_other_programs_and_those_that_are_gone(start: Start) -> None:
    assert layout_of(start("/bin/sh", "-c", "echo; read x").pid) is None
    gone = start()
    gone.kill()
    gone.wait()
    with pytest.raises(ProcessLookupError):
        layout_of(gone.pid)


@contextmanager
def own_memory(reads: int = 100) -> Iterator[ProcessMemory]:
    with ProcessMemory(os.getpid(), reads) as memory:
        yield memory


@pytest.mark.parametrize("address", [0, 8, 4096, (1 << 47) - 8, 1 << 47, 1 << 63, (1 << 64) - 8, 1 << 70, -8])
def test_no_address_but_one_that_is_mapped_is_read(address: int) -> None:
    with own_memory() as memory, pytest.raises(NotThereError):
        memory.word(address)


def test_memory_is_read_only_so_often() -> None:
    with own_memory(reads=3) as memory:
        tries: list[Callable[[], int]] = [lambda: memory.word(id(memory))] * 3
        assert [each() for each in tries]
        with pytest.raises(TooMuchError):
            memory.word(id(memory))


def test_memory_of_a_process_that_ends_while_it_is_read(start: Start) -> None:
    child = start()
    line = next(each for each in Path(f"/proc/{child.pid}/maps").read_text().splitlines() if "r-xp" in each)
    address = int(line.partition("-")[0], 16)
    with ProcessMemory(child.pid) as memory:
        memory.word(address)
        child.kill()
        child.wait()
        with pytest.raises(ProcessLookupError):
            memory.word(address)


def test_memory_that_may_not_be_read_is_a_reason(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start()

    def refuse(*_: object) -> ProcessMemory:
        raise PermissionError

    monkeypatch.setattr("ingero.discover.python_layout.ProcessMemory", refuse)
    assert looked_at(child.pid).why == "no permission to read its memory"


def test_a_process_that_ends_while_it_is_looked_at_is_gone(start: Start) -> None:
    for _ in range(20):
        with subprocess.Popen([HERE[0], "-c", "print(1, flush=True)"], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                found = layout_of(child.pid)
            except ProcessLookupError:
                continue
            assert found is None or found.layout is not None or found.why


def test_a_pointer_to_the_last_bytes_of_a_mapping_leads_to_no_word() -> None:
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as ours, ProcessMemory(os.getpid()) as memory:
        end = ctypes.addressof(ctypes.c_char.from_buffer(ours)) + mmap.PAGESIZE
        # Behind it is nothing, whatever is mapped meanwhile.
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, NO_ACCESS) == 0
        assert len(memory.words_up_to(end - 16, 8)) == 2
        with pytest.raises(NotThereError):
            memory.words_up_to(end - 4, 8)
