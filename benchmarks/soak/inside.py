"""`ingero` with a thread that writes down, every few seconds, what its memory is made of.

    python -m benchmarks.soak.inside FILE SECONDS ingero's own words

A line of JSON each: what the C library has handed out and what it keeps, by arena; Python's blocks; how many
objects of each kind there are; and how large the tables are that our own objects hold.
With SOAK_TRACEMALLOC=FRAMES the lines of code that hold most are in it, at several times the cost.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import threading
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

KINDS, LINES = 40, 40
MANY = 50  # entries of a table worth telling
FRAMES = "SOAK_TRACEMALLOC"


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
            "keepcost",
        )
    ]  # fmt: skip


def c_library() -> dict[str, int]:
    """In all arenas: handed out, kept for later, mapped on its own."""
    asked = ctypes.CDLL(None).mallinfo2
    asked.restype = Mallinfo2
    info = asked()
    return {
        "arenas": info.arena,
        "used": info.uordblks,
        "free": info.fordblks,
        "free_on_top": info.keepcost,
        "mapped": info.hblkhd,
    }


def mappings() -> dict[str, int]:
    """Resident memory by what it is of."""
    sums: Counter[str] = Counter()
    name = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split(None, 5)
        if re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", head[0]):
            path = head[5] if len(head) > 5 else ""
            name = path if path.startswith("[") else "file" if path.startswith("/") else "nameless"
            if path.startswith("anon_inode:"):
                name = "bpf"
        elif line.startswith("Rss:"):
            sums[name] += 1024 * int(head[1])
    return dict(sums)


def tables() -> Iterator[tuple[str, int]]:
    """Tables of our own objects with many entries."""
    for each in gc.get_objects():
        module = getattr(type(each), "__module__", "")
        if not isinstance(module, str) or not module.startswith("ingero"):
            continue
        try:
            attributes: dict[str, Any] = dict(vars(each))
        except TypeError:
            slots = getattr(type(each), "__slots__", ())
            attributes = {name: getattr(each, name, None) for name in slots}
        for name, value in attributes.items():
            if isinstance(value, dict | set | list | tuple | deque) and len(value) >= MANY:
                yield f"{type(each).__qualname__}.{name}", len(value)


def look(began: float) -> dict[str, Any]:
    sizes: Counter[str] = Counter()
    for name, size in tables():
        sizes[name] = max(sizes[name], size)
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    told: dict[str, Any] = {
        "at_s": round(time.monotonic() - began, 1),
        "c": c_library(),
        "mappings": mappings(),
        "blocks": sys.getallocatedblocks(),
        "kinds": dict(kinds.most_common(KINDS)),
        "tables": dict(sizes),
    }
    if tracemalloc.is_tracing():
        told["traced"], told["peak"] = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        told["lines"] = holders()
    return told


def holders() -> dict[str, int]:
    """The lines that hold most; with more than one frame, whom they were called by."""
    found = tracemalloc.take_snapshot().statistics("traceback")
    return {" < ".join(map(str, reversed(each.traceback))): each.size for each in found[:LINES]}


def watch_peak(path: Path) -> None:
    """Who held most whenever it was more than ever before."""
    most = 0
    while True:
        if (now := tracemalloc.get_traced_memory()[0]) > most * 1.05:
            most = now
            with path.with_suffix(".peak.json").open("wb") as out:
                out.write(msgspec.json.encode({"traced": now, "lines": holders()}))
        time.sleep(0.02)


def watch(path: Path, every_s: float) -> None:
    began = time.monotonic()
    time.sleep(5)  # the readers are forked from a process without other threads
    while True:
        with path.open("ab") as out:
            out.write(msgspec.json.encode(look(began)) + b"\n")
        time.sleep(every_s)


def main(words: list[str]) -> int:
    from ingero.serve.cli.main import main as ingero

    if frames := int(os.environ.get(FRAMES, "0")):
        tracemalloc.start(frames)
        threading.Thread(target=watch_peak, args=(Path(words[0]),), daemon=True).start()
    threading.Thread(target=watch, args=(Path(words[0]), float(words[1])), daemon=True).start()
    sys.argv = ["ingero", *words[2:]]
    return ingero()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
