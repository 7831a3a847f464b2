"""Text kept once: comms, reasons and operations as small numbers.

What a rolled-back transaction added is forgotten again, or rows would point at
numbers that were never stored.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model.kernels import KernelName
from ingero.model.operations import Operation, Source
from ingero.units import clean

COMM_LIMIT = 64
BLOCK_OPS = ("read", "write", "discard", "flush", "other")  # block.write in a record


class Names:
    """The numbers of strings and operations in one database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._strings: dict[str, int] = {}
        self._comms: dict[bytes, int] = {}
        self._ops: dict[tuple[str, str], int] = {}
        self._kernels: dict[KernelName, int] = {}

    def forget(self) -> None:
        """After a rollback: look everything up again."""
        self._strings.clear()
        self._comms.clear()
        self._ops.clear()
        self._kernels.clear()

    def string(self, text: str) -> int:
        known = self._strings.get(text)
        if known is None:
            self._connection.execute("INSERT OR IGNORE INTO string (text) VALUES (?)", (text,))
            found = self._connection.execute("SELECT id FROM string WHERE text = ?", (text,)).fetchone()
            known = self._strings[text] = int(found[0])
        return known

    def comm(self, raw: bytes) -> int:
        known = self._comms.get(raw)
        if known is None:
            known = self._comms[raw] = self.string(clean(raw, COMM_LIMIT))
        return known

    def comms(self, raw: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """The number of each command name."""
        distinct, inverse = np.unique(raw, return_inverse=True)
        numbers = np.fromiter(map(self.comm, distinct.tolist()), np.int64, len(distinct))
        return numbers[inverse]

    def kernel(self, name: KernelName) -> int:
        known = self._kernels.get(name)
        if known is None:
            self._connection.execute(
                "INSERT OR IGNORE INTO kernel (name, short, known) VALUES (?, ?, ?)",
                (name.text, name.short, name.known),
            )
            found = self._connection.execute("SELECT id FROM kernel WHERE name = ?", (name.text,)).fetchone()
            known = self._kernels[name] = int(found[0])
        return known

    def kernels(self, numbers: NDArray[Any], names: Mapping[int, KernelName]) -> NDArray[np.int64]:
        """The database's number of each kernel; 0 where it has no name."""
        distinct, inverse = np.unique(numbers, return_inverse=True)
        found = [self.kernel(names[each]) if each in names else 0 for each in distinct.tolist()]
        return np.array(found, np.int64)[inverse]

    def op(
        self, source: Source, layer: str, name: str, kind: str = "other", bytes_known: bool = False
    ) -> int:
        known = self._ops.get((layer, name))
        if known is None:
            row = self._connection.execute(
                "INSERT INTO op (source, layer, name, kind, bytes_known) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (layer, name) DO UPDATE SET kind = excluded.kind,"
                " bytes_known = excluded.bytes_known RETURNING id",
                (int(source), layer, name, kind, int(bytes_known)),
            ).fetchone()
            known = self._ops[layer, name] = int(row[0])
        return known

    def host_op(self, name: str) -> int:
        return self.op(Source.HOST, "host", name)

    def block_ops(self, kinds: NDArray[np.integer]) -> NDArray[np.int64]:
        numbers = np.array([self.op(Source.BLOCK_IO, "block", name) for name in BLOCK_OPS], np.int64)
        found: NDArray[np.int64] = numbers[np.minimum(kinds, len(BLOCK_OPS) - 1)]
        return found


RECORDED_ARGUMENTS = 8


class OperationTable:
    """What each operation number in a record means, as arrays to index with it."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        size = 1 + max((o.number for o in operations), default=0)
        self.operations = {o.number: o for o in operations}
        self.source = np.zeros(size, np.int64)
        self.direction = np.full(size, -1, np.int64)
        self.kind_arg = np.full(size, -1, np.int64)
        self.peer_arg = np.full(size, -1, np.int64)
        self.reduce_arg = np.full(size, -1, np.int64)
        self.dtype_arg = np.full(size, -1, np.int64)
        self.numbered = np.zeros(size, np.bool_)
        self.bytes_known = np.zeros(size, np.bool_)
        self.arity = np.full(size, 2, np.int64)
        self.kernel_arg = np.full(size, -1, np.int64)
        for operation in operations:
            self._fill(operation)

    def _fill(self, operation: Operation) -> None:
        at = operation.number
        self.source[at] = int(operation.source)
        self.numbered[at] = operation.kind == "collective"
        self.bytes_known[at] = operation.bytes_known
        self.arity[at] = operation.arity
        if operation.direction is not None:
            self.direction[at] = ("HtoH", "HtoD", "DtoH", "DtoD").index(operation.direction)
        for name in ("kind_arg", "peer_arg", "reduce_arg", "dtype_arg", "kernel_arg"):
            argument = getattr(operation, name)
            if argument is not None and argument < RECORDED_ARGUMENTS:
                getattr(self, name)[at] = argument

    def known(self, numbers: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which numbers this table has; a record with another one is from a foreign probe."""
        clipped = np.minimum(numbers.astype(np.int64), len(self.source) - 1)
        return (numbers < len(self.source)) & (self.source[clipped] > 0)

    def ids(self, names: Names) -> NDArray[np.int64]:
        """The database's number of each operation."""
        found = np.zeros(len(self.source), np.int64)
        for number, o in self.operations.items():
            found[number] = names.op(o.source, o.layer, o.name, o.kind, o.bytes_known)
        return found
