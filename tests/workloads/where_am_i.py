"""Calls CUDA from awkward places and says where it was; runs on any CPython from 3.9 without ingero.

    where_am_i.py FOLDER

FOLDER holds the stub's libraries. Every place allocates a number of bytes of its own, so
that the call can be told; allocating takes INGERO_STUB_ALLOC_US of CPU time, in which a
second thread asks the interpreter where the first one is. It believes what it sees only of a
call that has begun and has not ended: the first thread computed since it said where it is, and
nothing was allocated yet. Prints `ready PID`, waits for a line, prints for each place {"bytes",
"stack": [[function, file, line], ...]}, innermost first, and `done`, and waits for the end of
its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import zipfile

FIRST = 100_000
ALLOCATED = ctypes.c_void_p()
P = ctypes.byref(ALLOCATED)
COMPUTED_S = 0.005  # of CPU time: far more than from a spot to the call
spots: list[
    tuple[int, int, int, float]
] = []  # what is going on: bytes, thread, its clock, CPU time until then
seen: dict[int, list[list[object]]] = {}
places: list[object] = []


def allocate_from(folder: str) -> ctypes._FuncPtr:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc


allocate = allocate_from(sys.argv[1]) if len(sys.argv) > 1 else None


def spot() -> ctypes.c_size_t:
    """The next number of bytes; from now on the other thread looks where we are."""
    number = FIRST + len(spots)
    thread = threading.get_ident()
    clock = time.pthread_getcpuclockid(thread)
    spots.append((number, thread, clock, time.clock_gettime(clock)))
    ALLOCATED.value = None
    return ctypes.c_size_t(number)


def stack_of(thread: int) -> list[list[object]]:
    frame, found = sys._current_frames().get(thread), []
    while frame is not None:
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


def watch(end: threading.Event) -> None:
    while not end.is_set():
        time.sleep(0.002)
        with contextlib.suppress(IndexError, OSError):  # nothing yet; the thread has ended
            number, thread, clock, before_s = spots[-1]
            if number not in seen and time.clock_gettime(clock) - before_s > COMPUTED_S:
                stack = stack_of(thread)
                # In this order: between two calls something is allocated until there is another spot.
                if ALLOCATED.value is None and spots[-1][0] == number:
                    seen[number] = stack


def place(function):
    places.append(function)
    return function


@place
def plain():
    def inner():
        allocate(P, spot())

    inner()


@place
def over_several_lines():
    allocate(
        P,
        spot(),
    )


@place
def argument_on_another_line():
    result = max(
        0,
        allocate(P, spot()),
    )
    return result  # noqa: RET504


def twice(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@place
@twice
@twice
def decorated():
    allocate(P, spot())


@place
def comprehension():
    return [allocate(P, spot()) for _ in range(1)]


@place
def dict_and_set_comprehension():
    return {key: {allocate(P, spot()) for _ in "a"} for key in "b"}


@place
def in_a_lambda():
    return (lambda: allocate(P, spot()))()


@place
def called_by_c():
    return sorted([1, 2], key=lambda value: allocate(P, spot()) if value == 1 else 0)


@place
def through_partial_and_map():
    return list(map(functools.partial(lambda one, two: allocate(P, spot()), 1), [2]))


@place
def nested_generators():
    def innermost():
        yield allocate(P, spot())

    def middle():
        yield from innermost()

    def outer():
        for value in middle():  # noqa: UP028
            yield value

    return list(outer())


@place
def generator_expression():
    return sum(allocate(P, spot()) for _ in range(1))


@place
def asyncio_task():
    async def child():
        await asyncio.sleep(0)
        allocate(P, spot())

    async def main():
        await asyncio.gather(child())

    asyncio.run(main())


@place
def another_thread():
    thread = threading.Thread(target=lambda: allocate(P, spot()))
    thread.start()
    thread.join()


@place
def executed_code():
    exec(compile("\n\ndef made():\n    allocate(P, spot())\n\nmade()\n", "<made up>", "exec"), globals())


@place
def deep_recursion():
    def down(depth):
        return allocate(P, spot()) if depth == 0 else down(depth - 1)

    down(120)


@place
def größenänderung_中文():  # noqa: N802
    def θ():
        allocate(P, spot())

    θ()


class Layer:
    def __call__(self, *args):
        return self.forward(*args)

    def forward(self, *args):
        with self:
            return

    def __enter__(self):
        return self

    def __exit__(self, *error):
        allocate(P, spot())

    @property
    def size(self):
        return allocate(P, spot())

    @staticmethod
    def made():
        return Layer().size


@place
def methods():
    Layer()(1)


@place
def properties():
    Layer.made()


@place
def while_an_exception_is_handled():
    try:
        raise ValueError
    except ValueError:
        with contextlib.suppress(KeyError):
            allocate(P, spot())


@place
def a_zipped_module():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="größe "), "a" * 100)
    folder.mkdir()
    path = str(folder / "archive.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zipped.py", "\n\n\ndef work(allocate, P, spot):\n    allocate(P, spot())\n")
    sys.path.insert(0, path)
    import zipped

    zipped.work(allocate, P, spot)


@place
def long_function():
    value = 0
    if value:
        value += 1
        value += 2
    # a jump in the line numbers that needs more than a byte
    text = """





















































































































































"""
    allocate(P, spot())
    return value, text


@place
def very_long_code():
    """Its line table does not fit into a record."""
    lines = "".join(f"    value = [{n}, len(str({n}))] if value is None else None\n" for n in range(3000))
    scope = dict(globals())
    exec(compile("def made(value=None):\n" + lines + "    allocate(P, spot())\n", "long.py", "exec"), scope)
    scope["made"]()


@place
def code_used_again():
    for turn in range(12):
        source = "\n" * turn + f"def made_{turn}():\n    allocate(P, spot())\n"
        scope = dict(globals())
        exec(compile(source, f"made_{turn}.py", "exec"), scope)
        scope[f"made_{turn}"]()


def main() -> None:
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    end = threading.Event()
    watcher = threading.Thread(target=watch, args=(end,))
    watcher.start()
    for function in places:
        function()
    end.set()
    watcher.join()
    for number, stack in sorted(seen.items()):
        print(json.dumps({"bytes": number, "stack": stack}))
    print(json.dumps({"places": len(spots)}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
