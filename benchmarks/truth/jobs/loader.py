"""Where batches come from: made here, by a thread ahead of time, or by worker processes.

Workers are as in the usual data loaders: each has a queue of indices, all share one
queue of results, batches are taken in order, two per worker are under way.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import queue
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from book import Book
from settings import Plan, Settings
from work import compute

AHEAD = 2  # batches under way for each worker
CHUNK = 1 << 18


class Samples:
    """Makes batches; one for each thread or process that does."""

    def __init__(self) -> None:
        self._file = -1
        self._memory = mmap.mmap(-1, CHUNK)
        self._kept: list[bytes] = []
        self._random = random.Random(os.getpid())

    def batch(self, settings: Settings, number: int = 0) -> int:
        if settings.read_bytes:
            self._read(settings)
        compute(settings.batch_ms * self._random.uniform(0.9, 1.1))
        if settings.batch_sleep_ms:
            time.sleep(settings.batch_sleep_ms * self._random.uniform(0.9, 1.1) / 1e3)
        if number == settings.late_worker:
            time.sleep(settings.late_worker_sleep_ms / 1e3)
        if settings.worker_keeps_bytes:
            self._kept.append(os.urandom(4096) * (settings.worker_keeps_bytes // 4096))
        return 1

    def _read(self, settings: Settings) -> None:
        if self._file < 0:
            self._file = os.open(settings.dataset, os.O_RDONLY | os.O_DIRECT * settings.read_direct)
            self._chunks = os.fstat(self._file).st_size // settings.read_chunk_bytes
            if settings.read_again:
                self._read_all()
        chunk = settings.read_chunk_bytes
        for _ in range(max(settings.read_bytes // chunk, 1)):
            at = self._random.randrange(self._chunks) * chunk
            if not settings.read_direct and not settings.read_again:
                os.posix_fadvise(self._file, at, chunk, os.POSIX_FADV_DONTNEED)
            os.preadv(self._file, [memoryview(self._memory)[:chunk]], at)

    def _read_all(self) -> None:
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)
        for at in range(0, os.fstat(self._file).st_size, CHUNK):
            os.preadv(self._file, [self._memory], at)


def inline(plan: Plan, book: Book, rank: int) -> Iterator[int]:
    samples = Samples()
    while True:
        yield samples.batch(plan.at(book.phase, rank))


def from_thread(plan: Plan, book: Book, rank: int) -> Iterator[int]:
    ready: queue.Queue[int] = queue.Queue(AHEAD)

    def prefetch() -> None:
        samples = Samples()
        while True:
            ready.put(samples.batch(plan.at(book.phase, rank)))

    threading.Thread(target=prefetch, daemon=True).start()
    while True:
        yield ready.get()


def _worker(number: int, indices: Any, results: Any, plan: Plan, path: str, rank: int) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive the job
    if plan.usual.worker_core >= 0:
        os.sched_setaffinity(0, {plan.usual.worker_core})
    book, samples = Book(path), Samples()
    while (index := indices.get()) is not None:
        results.put((index, samples.batch(plan.at(book.phase, rank), number)))


class Workers:
    """Worker processes; one that died is replaced and its batches asked for again."""

    def __init__(self, plan: Plan, book: Book, path: str, rank: int) -> None:
        self._book = book
        self._fork = multiprocessing.get_context("fork")
        self._arguments = (plan, path, rank)
        self._results = self._fork.Queue()
        self._crew: list[tuple[Any, Any]] = [self._hire(number) for number in range(plan.usual.workers)]
        self._asked = 0
        self._next = 0
        self._early: dict[int, int] = {}

    def _hire(self, number: int) -> tuple[Any, Any]:
        indices = self._fork.Queue()
        arguments = (number, indices, self._results, *self._arguments)
        process = self._fork.Process(target=_worker, args=arguments, daemon=True)
        process.start()
        self._book.worker_hired(process.pid or 0)
        return process, indices

    def __iter__(self) -> Iterator[int]:
        for _ in range(AHEAD * len(self._crew)):
            self._ask()
        while True:
            yield self._in_order()
            self._ask()

    def _ask(self) -> None:
        self._crew[self._asked % len(self._crew)][1].put(self._asked)
        self._asked += 1

    def _in_order(self) -> int:
        while self._next not in self._early:
            try:
                index, batch = self._results.get(timeout=0.5)
                self._early[index] = batch
            except queue.Empty:
                self._replace_dead()
        self._next += 1
        return self._early.pop(self._next - 1)

    def _replace_dead(self) -> None:
        for number, (process, _) in enumerate(self._crew):
            if not process.is_alive():
                self._crew[number] = self._hire(number)
                for index in range(self._next, self._asked):
                    if index % len(self._crew) == number and index not in self._early:
                        self._crew[number][1].put(index)


def batches(plan: Plan, book: Book, path: str, rank: int) -> Iterator[int]:
    if plan.usual.loader == "workers":
        return iter(Workers(plan, book, path, rank))
    return (from_thread if plan.usual.loader == "thread" else inline)(plan, book, rank)
