"""Threads that stay in known places, and a report of where: the interpreter's own view of its frames.

Prints one line of JSON: per thread its ident, native id and frames (name, file, line),
innermost first. Then waits for standard input to end. Runs on 3.9 and later.
"""

import asyncio
import functools
import json
import os
import sys
import threading
import time

FOREVER_S = 1000


class Ünïcode:
    """A class whose name is not ASCII, with an __init__ that is called often before it stays."""

    def __init__(self, stay):
        if stay:
            time.sleep(FOREVER_S)

    def ĝi(self, stay):
        return Ünïcode(stay)


def generator():
    yield 1
    yield from (time.sleep(FOREVER_S) for _ in range(1))


def in_generator():
    for _ in generator():
        pass


async def inner():
    await asyncio.sleep(0)
    time.sleep(FOREVER_S)


async def outer():
    await asyncio.gather(inner())


def in_coroutine():
    asyncio.run(outer())


def in_callback():
    def key(_):
        def plain():
            (lambda: time.sleep(FOREVER_S))()

        plain()

    sorted([1, 2], key=key)


def in_init():
    for each in range(200):  # often enough for the call to become one of the quick kind
        Ünïcode(False).ĝi(each == 199)


def for_lock():
    lock = threading.Lock()
    lock.acquire()
    with lock:
        pass


def deep(levels):
    if levels:
        return deep(levels - 1)
    return time.sleep(FOREVER_S)


def partial():
    functools.partial(deep, 150)()


def spinning():
    while True: pass  # fmt: skip  # noqa: E701 (one line to be at)


def where(frame):
    found = []
    while frame:
        code = frame.f_code
        found.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def described(thread, frame):
    return {"ident": thread.ident, "native": thread.native_id, "name": thread.name, "frames": where(frame)}


def seen():
    frames, me = sys._current_frames(), threading.current_thread()
    others = [each for each in threading.enumerate() if each is not me and each.ident in frames]
    return [described(each, frames[each.ident]) for each in others]


def report():
    """Once every thread has stayed where it is for a while."""
    before, now = None, seen()
    while now != before:
        time.sleep(0.15)
        before, now = now, seen()
    print(json.dumps({"threads": now, "version": sys.version.split()[0], "pid": os.getpid()}), flush=True)
    sys.stdin.read()


def main(names):
    for name in names:
        threading.Thread(target=globals()[name], name=name, daemon=True).start()
    threading.Thread(target=report, name="report", daemon=True).start()
    time.sleep(FOREVER_S)


main(sys.argv[1:])
