"""Compressed pictures, decoded and normalised."""

from __future__ import annotations

import queue
import threading
import zlib

import numpy as np

SIDE = 160


class Pictures:
    def __init__(self, count: int = 64) -> None:
        rng = np.random.default_rng(1)
        pictures = rng.integers(0, 90, (count, SIDE, SIDE, 3), dtype=np.uint8)
        self._files = [zlib.compress(picture.tobytes(), 1) for picture in pictures]

    def decode(self, index: int) -> np.ndarray:
        raw = zlib.decompress(self._files[index % len(self._files)])
        return np.frombuffer(raw, np.uint8).reshape(SIDE, SIDE, 3)

    def normalise(self, picture: np.ndarray) -> np.ndarray:
        scaled = picture.astype(np.float32) / 255
        return (scaled - 0.45) / 0.22

    def batch(self, first: int, size: int) -> np.ndarray:
        return np.stack([self.normalise(self.decode(index)) for index in range(first, first + size)])


class Prefetcher:
    """A thread that is a few batches ahead."""

    def __init__(self, pictures: Pictures, size: int) -> None:
        self._ready: queue.Queue[np.ndarray] = queue.Queue(maxsize=4)
        threading.Thread(target=self._fill, args=(pictures, size), daemon=True).start()

    def _fill(self, pictures: Pictures, size: int) -> None:
        first = 0
        while True:
            self._ready.put(pictures.batch(first, size))
            first += size

    def next(self) -> np.ndarray:
        return self._ready.get()
