"""Reads whole BPF maps into arrays."""

from __future__ import annotations

import numpy as np

from ingero.model.window import Records
from ingero.native import _shim


class MapReader:
    """One map, read again and again into the same buffers, which grow when needed.

    A per-CPU map's values come as a second dimension, one per core.
    """

    def __init__(
        self, fd: int, key: np.dtype[np.void], value: np.dtype[np.void], cpus: int = 1, entries: int = 256
    ) -> None:
        self._fd = fd
        self._key = key
        self._value = value
        self._cpus = cpus
        self._room(entries)

    def _room(self, entries: int) -> None:
        self._keys = np.zeros(entries, self._key)
        self._values = np.zeros((entries, self._cpus), self._value)

    def read(self) -> tuple[Records, Records]:
        """(keys, values); the arrays are overwritten by the next read."""
        while True:
            count = _shim.map_read_all(
                self._fd,
                self._keys.view(np.uint8),
                self._values.view(np.uint8).reshape(-1),
                self._key.itemsize,
                self._value.itemsize * self._cpus,
            )
            if count >= 0:
                return self._keys[:count], self._values[:count]
            self._room(len(self._keys) * 4)

    def delete(self, keys: Records) -> None:
        raw = keys.tobytes()
        size = self._key.itemsize
        for at in range(0, len(raw), size):
            _shim.map_delete(self._fd, raw[at : at + size])
