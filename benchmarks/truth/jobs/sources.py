"""More places where batches come from: pickles, a decoder in C, a simulator, a mapped file."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import multiprocessing
import os
import pickle
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loader
from book import Book
from settings import Plan

ITEMS = 40_000
PAGE = 4096


def ahead(make: Callable[[], int]) -> Iterator[int]:
    """Made by a thread, two at most in advance."""
    ready: queue.Queue[int] = queue.Queue(loader.AHEAD)

    def work() -> None:
        while True:
            ready.put(make())

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield ready.get()


def _reader_process(pipe: Any) -> None:
    """Has samples at hand, as pickles of every length asked for."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    items = [{"id": index, "words": [index, str(index)], "weight": index / 3} for index in range(ITEMS)]
    made: dict[int, bytes] = {}
    while True:
        count = pipe.recv()
        if count not in made:
            made[count] = pickle.dumps(items[:count])
        pipe.send_bytes(made[count])


def pickled(plan: Plan, book: Book) -> Iterator[int]:
    """Another process has the samples; a thread here turns its bytes into objects."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_reader_process, args=(theirs,), daemon=True)
    process.start()
    book.worker_hired(process.pid or 0)

    def unpickle() -> int:
        ours.send(plan.at(book.phase).batch_items)
        return len(pickle.loads(ours.recv_bytes()))

    return ahead(unpickle)


def decoded(plan: Plan, book: Book) -> Iterator[int]:
    """A thread decompresses, in C and without the interpreter's lock."""
    packed = zlib.compress(random.Random(1).randbytes(1 << 16) * 8, 1)

    def decode() -> int:
        until_ns = time.thread_time_ns() + int(plan.at(book.phase).batch_ms * 1e6)
        while time.thread_time_ns() < until_ns:
            zlib.decompress(packed)
        return 1

    return ahead(decode)


def child(path: str, book: Book) -> Iterator[int]:
    """A simulator answers with a batch; the next one is asked for before this one is used."""
    command = [sys.executable, str(Path(__file__).with_name("simulator.py")), sys.argv[1], path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    book.worker_hired(process.pid)
    asking, answering = process.stdin, process.stdout
    assert asking is not None
    assert answering is not None
    asking.write(b"n")
    while batch := answering.read(64):
        asking.write(b"n")
        yield len(batch)


def mapped(plan: Plan, book: Book) -> Iterator[int]:
    """Pages of a mapped file are touched, here and there."""
    file = os.open(plan.usual.dataset, os.O_RDONLY)
    memory = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    memory.madvise(mmap.MADV_RANDOM)
    anywhere = random.Random(os.getpid())
    for number in itertools.count():
        settings, total = plan.at(book.phase), 0
        for _ in range(settings.pages):
            total += memory[anywhere.randrange(len(memory) // PAGE) * PAGE]
        if number % 256 == 0:  # what was touched is not kept for ever
            memory.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        yield total


def batches(plan: Plan, book: Book, path: str) -> Iterator[int]:
    made = {
        "pickled": lambda: pickled(plan, book),
        "decoded": lambda: decoded(plan, book),
        "child": lambda: child(path, book),
        "mapped": lambda: mapped(plan, book),
    }
    usual = plan.usual.loader
    return made[usual]() if usual in made else loader.batches(plan, book, path, 0)
