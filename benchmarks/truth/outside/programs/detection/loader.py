"""Worker processes that read, decode and augment samples."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import multiprocessing.queues
import os
import random
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
from runbook import Run

SAMPLE = 256 << 10


def read(path: str, index: int) -> bytes:
    """One sample of the file, from the disk when it is not in memory."""
    with open(path, "rb") as file:  # noqa: PTH123
        count = max(1, os.fstat(file.fileno()).st_size // SAMPLE)
        offset = (index * 7919 % count) * SAMPLE
        file.seek(offset)
        raw = file.read(SAMPLE)
        os.posix_fadvise(file.fileno(), offset, SAMPLE, os.POSIX_FADV_DONTNEED)
    return raw


def augment(picture: np.ndarray, passes: int) -> np.ndarray:
    for _ in range(passes):
        picture = np.roll(picture, 3, axis=1) * np.float32(0.99) + np.float32(0.01)
    return picture


def sample(run: Run, index: int, packed: bytes) -> np.ndarray:
    if run.get("dataset"):
        packed = zlib.compress(read(run["dataset"], index)[:4096], 1)
    raw = zlib.decompress(packed)
    picture = np.frombuffer(raw[:4096], np.uint8).astype(np.float32).reshape(64, 64)
    return augment(picture, run["passes"])


def work(run: Run, number: int, ready: multiprocessing.queues.Queue[np.ndarray]) -> None:
    packed = zlib.compress(random.Random(number).randbytes(8192), 1)
    index = number
    while True:
        if run.get("workers_left") is not None and number >= run["workers_left"]:
            sys.exit(1)  # as one does that met a broken sample
        picture = sample(run, index, packed)
        index += 101
        with contextlib.suppress(ValueError):
            ready.put(picture)


def checksum(blocks: int) -> str:
    """Of the shard, for the report; many threads, so that it is quick."""
    digest = hashlib.sha256()
    for _ in range(blocks):
        digest.update(bytes(1 << 20))
    return digest.hexdigest()


def checksum_always(run: Run) -> None:
    while True:
        if run.get("checksum_threads"):
            group = [threading.Thread(target=checksum, args=(40,)) for _ in range(run["checksum_threads"])]
            for each in group:
                each.start()
            for each in group:
                each.join()
        else:
            threading.Event().wait(0.1)


class Loader:
    def __init__(self, run: Run) -> None:
        context = multiprocessing.get_context("fork")
        self._ready = context.Queue(maxsize=6)
        self.workers = [
            context.Process(
                target=work, args=(run, number, self._ready), daemon=True, name=f"loader-{number}"
            )
            for number in range(run["workers"])
        ]
        for worker in self.workers:
            worker.start()

    def next(self) -> np.ndarray:
        return self._ready.get()


def list_shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.bin"))
