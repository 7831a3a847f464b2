"""How to read Python frames, found out on real interpreters: what is then read is what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ingero.capture.code_objects import line_at
from ingero.discover import python_layout
from ingero.discover.python_layout import PythonFrames, layout_of
from ingero.discover.python_offsets import OFFSETS
from ingero.model.layout import PYTHON_LAYOUT, PythonFlag
from tests.conftest import require
from tests.python_walk import Walk, Walked
from tests.pythons import HERE, KINDS, SUPPORTED, kind_of

from .conftest import WAIT, Build

PROGRAM = (Path(__file__).parents[2] / "workloads/frames.py").read_text()
NAMES = PYTHON_LAYOUT.names or ()
STAYING = ("in_generator", "in_coroutine", "in_callback", "in_init", "for_lock", "partial")


@contextmanager
def started(command: list[str], env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | (env or {})
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        try:
            yield child
        finally:
            child.kill()


@contextmanager
def staying(python: str, *names: str, env: dict[str, str] | None = None) -> Iterator[tuple[int, Any]]:
    """A process whose threads stay where they are, and what it says of them."""
    with started([python, "-c", PROGRAM, *names], env) as child:
        assert child.stdout is not None
        yield child.pid, json.loads(child.stdout.readline())


def read(pid: int) -> PythonFrames:
    found = layout_of(pid)
    assert found is not None
    assert found.layout is not None, found.why
    return found


def minor_of(found: PythonFrames) -> int:
    return int(found.version.split(".")[1])


def shown(frames: list[Walked], minor: int) -> list[list[Any]]:
    """As tracebacks have them."""
    return [
        [each.name, each.file, line_at((3, minor), each.lines, each.first_line, each.at)]
        for each in frames
        if not each.name == each.file == "__init__"  # between a class's call and its __init__, from 3.13
    ]


def soon(holds: Callable[[], bool]) -> None:
    """It becomes so: on a busy machine a thread may take its time."""
    for _ in range(2000):
        if holds():
            return
        time.sleep(0.005)
    assert holds()


def check(pid: int, said: Any) -> PythonFrames:
    """What is read of every thread is what the process said."""
    found = read(pid)
    with Walk(pid, found.layout) as walk:
        for thread in said["threads"]:
            assert shown(walk.frames(thread["ident"]), minor_of(found)) == thread["frames"], thread["name"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_interpreter_that_can_be_read_is_here(kind: str) -> None:
    here = {str(kind_of(python)) for python in SUPPORTED}
    absent = f"no Python {kind} is here; INGERO_PYTHONS names commands that run one"
    require("pythons", [] if kind in here else [absent])


def test_the_kinds_tested_are_those_with_offsets() -> None:
    assert {f"3.{minor}{'t' if free else ''}" for minor, free in OFFSETS} == set(KINDS)


@pytest.mark.parametrize("python", SUPPORTED)
def test_the_frames_read_are_those_the_interpreter_names(python: str) -> None:
    with staying(python, *STAYING) as (pid, said):
        assert len(said["threads"]) >= 1 + len(STAYING)
        assert said["version"].startswith(check(pid, said).version)


@pytest.mark.parametrize("python", SUPPORTED)
def test_frames_are_read_while_another_thread_holds_the_lock(python: str) -> None:
    with staying(python, "spinning", "in_callback") as (pid, said):
        check(pid, said)


@pytest.mark.parametrize("python", SUPPORTED)
def test_entries_from_c_are_told_from_calls_within_python(python: str) -> None:
    with staying(python, "in_callback") as (pid, said):
        found = read(pid)
        thread = next(each for each in said["threads"] if each["name"] == "in_callback")
        with Walk(pid, found.layout) as walk:
            frames = {each.name.rpartition(".")[2]: each.entered for each in walk.frames(thread["ident"])}
    each_enters = minor_of(found) <= 10
    assert frames["key"]  # sorted() called it
    assert frames["plain"] is each_enters


@pytest.mark.parametrize("python", SUPPORTED)
def test_threads_have_their_own_ids(python: str) -> None:
    with staying(python, "for_lock") as (pid, said):
        found = read(pid)
        assert found.layout is not None
        assert bool(found.layout["state_native_id"]) == (minor_of(found) >= 11)
        assert bool(found.layout["thread_tid"]) == (minor_of(found) < 11)  # then the C library knows
        with Walk(pid, found.layout) as walk:
            for thread in said["threads"]:
                assert walk.native_id(thread["ident"]) == thread["native"]


@pytest.mark.parametrize("python", SUPPORTED)
def test_code_objects_can_be_told_apart(python: str) -> None:
    with staying(python, "in_callback") as (pid, said):
        found = read(pid)
        with Walk(pid, found.layout) as walk:
            frames = [each for thread in said["threads"] for each in walk.frames(thread["ident"])]
    assert found.layout is not None
    names = {each.name for each in frames}
    if minor_of(found) >= 12:
        assert len({each.version for each in frames}) >= len(names)


@pytest.mark.parametrize("python", SUPPORTED)
def test_a_forked_child_is_read_like_any_other(python: str) -> None:
    program = f"import os\nif os.fork(): os.wait(); os._exit(0)\nprint(os.getpid(), flush=True)\n{PROGRAM}"
    with started([python, "-c", program, "in_callback"]) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        try:
            check(pid, json.loads(child.stdout.readline()))
        finally:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a namespace")
@pytest.mark.parametrize("python", SUPPORTED)
def test_a_container_counts_its_own_threads(python: str) -> None:
    with started(["unshare", "--pid", "--fork", "--kill-child", python, "-c", PROGRAM, "for_lock"]) as child:
        assert child.stdout is not None
        said = json.loads(child.stdout.readline())
        pid = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text())
        assert pid != said["pid"]
        check(pid, said)
        layout = read(pid).layout
        assert layout is not None
        with Walk(pid, layout) as walk:
            for thread in said["threads"] if layout["state_native_id"] else ():
                assert walk.native_id(thread["ident"]) == thread["native"]


@pytest.mark.parametrize("python", SUPPORTED)
def test_a_program_that_never_waits_is_read(python: str) -> None:
    busy = "def f(n): return f(n - 1) if n else 0\nprint(1, flush=True)\nwhile True: f(30)"
    with started([python, "-c", busy]) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for _ in range(20):
            read(child.pid)


@pytest.mark.parametrize("python", SUPPORTED)
def test_threads_that_come_and_go_do_no_harm(python: str) -> None:
    churn = """
import threading, time
def start(): threading.Thread(target=again, daemon=True).start()
def again(): time.sleep(0.001); start()
for _ in range(4): start()
print(1, flush=True)
time.sleep(1000)
"""
    with started([python, "-c", churn]) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for _ in range(20):
            read(child.pid)


MANY_KEYS = """
#include <pthread.h>
__attribute__((constructor)) static void make(void)
{
	pthread_key_t key;
	for (int i = 0; i < 40; i++)
		pthread_key_create(&key, 0);
}
"""


@pytest.mark.parametrize("python", HERE)
def test_a_key_beyond_the_first_block_is_found_behind_its_pointer(
    python: str, build: Build, tmp_path: Path
) -> None:
    library = build(tmp_path / "keys.so", MANY_KEYS)
    with staying(python, "in_callback", env={"LD_PRELOAD": str(library)}) as (pid, said):
        layout = check(pid, said).layout
        assert layout is not None
        assert layout["flags"] & PythonFlag.PYTHON_KEY_BLOCK
        assert layout["key_block"] > 0


# Another library that keeps the main thread's state under a key of its own, as bindings do: a later
# key, or one that was free again, before the interpreter's.
SECOND_KEY = """
#include <pthread.h>
static pthread_key_t early[4], late;
__attribute__((constructor)) static void make(void)
{
	for (int i = 0; i < 4; i++)
		pthread_key_create(&early[i], 0);
}
void keep_late(void *state) { pthread_key_create(&late, 0); pthread_setspecific(late, state); }
void keep_early(void *state)
{
	pthread_key_delete(early[0]);
	keep_late(state);
}
void keep_none(void *state) {}
"""
KEEP = """
import ctypes
state = ctypes.pythonapi.PyThreadState_Get
state.restype = ctypes.c_void_p
getattr(ctypes.CDLL(None), %r)(ctypes.c_void_p(state()))
"""


@pytest.mark.parametrize("python", HERE)
def test_a_thread_state_that_somebody_else_keeps_is_not_taken(
    python: str, build: Build, tmp_path: Path
) -> None:
    library = build(tmp_path / "second.so", SECOND_KEY)
    found = []
    for function in ("keep_none", "keep_late", "keep_early"):
        with started([python, "-c", KEEP % function + WAIT], env={"LD_PRELOAD": str(library)}) as child:
            assert child.stdout is not None
            child.stdout.readline()
            layout = read(child.pid).layout
            assert layout is not None
            found.append(int(layout["thread_state"]))
    assert found == [found[0]] * 3


@pytest.mark.parametrize("python", SUPPORTED)
def test_the_collector_is_seen_at_work(python: str) -> None:
    collect = (
        "import gc, time\n"
        "gc.callbacks.append(lambda phase, info: (print(phase, flush=True), time.sleep(1000)))\n"
        "print(1, flush=True)\nimport sys; sys.stdin.readline()\ngc.collect()"
    )
    with started([python, "-c", collect]) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        layout = read(child.pid).layout
        assert layout is not None
        with Walk(child.pid, layout) as walk:
            assert walk.number(walk.at("collecting"), 4) == 0
            child.stdin.write(b"\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"start\n"
            assert walk.number(walk.at("collecting"), 4) == 1


def test_the_collector_is_known_before_its_module_is_imported() -> None:
    for python in HERE:
        with started([python, "-S", "-c", WAIT]) as child:
            assert child.stdout is not None
            child.stdout.readline()
            layout = read(child.pid).layout
            assert layout is not None
            assert layout["collecting"], python


@pytest.mark.parametrize("python", SUPPORTED)
def test_the_lock_says_who_holds_it(python: str) -> None:
    with staying(python, "for_lock") as (pid, _):
        found = read(pid)
        layout = found.layout
        assert layout is not None
        if found.free_threaded:
            assert not found.has_lock
            assert not any(layout[name] for name in ("lock", "lock_end", "lock_holder", "lock_held"))
            return
        with Walk(pid, layout) as walk:
            soon(lambda: walk.number(walk.at("lock_held"), 4) == 0)
    with staying(python, "spinning") as (pid, said):
        layout = read(pid).layout
        assert layout is not None
        spinning = next(each for each in said["threads"] if each["name"] == "spinning")
        with Walk(pid, layout) as walk:
            expected = (1, walk.state(spinning["ident"]))
            soon(
                lambda: (
                    (walk.number(walk.at("lock_held"), 4), walk.number(walk.at("lock_holder"))) == expected
                )
            )


@pytest.mark.parametrize("python", SUPPORTED)
def test_who_waits_for_the_lock_waits_within_it(python: str) -> None:
    spin = (
        "import threading\ndef spin():\n  while True: pass\n"
        "for _ in range(3): threading.Thread(target=spin).start()\nprint(1, flush=True)"
    )
    with started([python, "-c", spin]) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = read(child.pid)
        layout = found.layout
        assert layout is not None
        if found.free_threaded:
            return
        soon(lambda: any(layout["lock"] <= each < layout["lock_end"] for each in futexes(child.pid)))


def futexes(pid: int) -> list[int]:
    """What the process's threads wait for in futex calls now."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        words = (task / "syscall").read_text().split()
        if words[0] == "202":
            found.append(int(words[1], 16))
    return found


@pytest.mark.parametrize("python", HERE)
def test_types_are_where_the_interpreter_has_them(python: str) -> None:
    where = "import ctypes; print(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, 'PyCode_Type')));"
    with started([python, "-c", where + WAIT]) as child:
        assert child.stdout is not None
        said = int(child.stdout.readline())
        child.stdout.readline()
        layout = read(child.pid).layout
        assert layout is not None
        assert layout["code_type"] == said


@contextmanager
def moved(monkeypatch: pytest.MonkeyPatch, minor: int, **by: int) -> Iterator[None]:
    """The table wrong by some bytes, and the runtime's own offsets not believed."""
    with monkeypatch.context() as patch:
        patch.setattr(python_layout, "STATED", {})
        patch.setattr(python_layout, "TRIES", 1)  # nothing here changes until it fits
        offsets = OFFSETS[minor, False]
        wrong = {name: max(offsets[name] + shift, 0) for name, shift in by.items()}
        patch.setattr(python_layout, "OFFSETS", {(minor, False): {**offsets, **wrong}})
        yield


@pytest.mark.parametrize("python", HERE)
def test_an_interpreter_that_was_moved_by_a_patch_is_searched_for(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staying(python, "in_callback") as (pid, said):
        found = check(pid, said)
        minor = minor_of(found)
        shifts = ({"runtime_interpreters": 16}, {"interpreter_threads": 48, "interpreter_next": 48})
        for shift in (*shifts, shifts[0] | shifts[1] | {"interpreter_collecting": 64}):
            with moved(monkeypatch, minor, **shift):
                again = check(pid, said)
                assert "searched" in again.route
                assert again.layout is not None
                assert found.layout is not None
                different = [name for name in NAMES if again.layout[name] != found.layout[name]]
                # 3.9 has one of the two lists only that the collector is searched by
                assert different == (
                    ["collecting"] if minor == 9 and "interpreter_collecting" in shift else []
                )


# Nothing in a process tells these from a neighbour that looks alike (one str from another), or they are not
# always met. They lie among fields that are checked, in a type whose size is: a patch moves those as well.
ALIKE = {
    "code_first_line",
    "code_version",
    "code_name",
    "code_file",
    "code_units",
    "code_bytes",
    "frame_mark",
}
ALIKE |= {"owner_c", "text_hash", "lock_held", "frame_at"}
LEFT_OUT = {"state_native_id", "lock_interval", "lock_holder", "interpreter_lock", "runtime_lock"}
FOUND_AGAIN = {"runtime_interpreters", "interpreter_threads", "interpreter_next", "interpreter_collecting"}
ONLY_A_HINT = {"runtime_key", "lock_bytes", "state_next"}


@pytest.mark.parametrize("python", HERE)
def test_a_wrong_offset_never_gets_into_a_layout(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with staying(python, "in_generator") as (pid, said):
        right = check(pid, said)
        minor = minor_of(right)
        for name in OFFSETS[minor, False].keys() - ALIKE - FOUND_AGAIN - ONLY_A_HINT:
            for shift in (8, 64):
                with moved(monkeypatch, minor, **{name: shift}):
                    found = layout_of(pid)
                assert found is not None
                if name not in LEFT_OUT:
                    assert found.layout is None, (name, shift)
                elif found.layout is not None and right.layout is not None and name in NAMES:
                    assert found.layout[name] in (0, right.layout[name]), (name, shift)
