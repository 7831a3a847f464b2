"""Text kept once: comms, reasons and operations as small numbers.

What a rolled-back transaction added is forgotten again, or rows would point at
numbers that were never stored. Jobs name their threads and kernels as they like, so the
number of names is bounded, for each process and in all; what is beyond is one name, and counted.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model.operations import KernelName, Operation, Source
from ingero.units import clean

COMM_LIMIT = 64
PER_PROCESS = 512  # new names of one process, between two looks for unused ones
MOST, FEWEST = 50_000, 2_000
BYTES_PER_NAME = 2_000  # of the largest size a database may have: names stay below a tenth of it
OTHERS = "[too many names]"
LOSS = "name_full"
BLOCK_OPS = ("read", "write", "discard", "flush", "other")  # block.write in a record


class Names:
    """The numbers of strings and operations in one database."""

    def __init__(self, connection: sqlite3.Connection, most: int | None = None) -> None:
        """`most` names and kernels each; None: as many as there are."""
        self._connection, self._most = connection, most
        self.left_out = self.added = 0  # since they were last taken
        self._new_of: Counter[int] = Counter()  # names by process
        self._counts: dict[str, int] = {}  # rows by table
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
        self._counts.clear()
        self._new_of.clear()

    def held(self) -> dict[str, set[int]]:
        """What was handed out since it was last forgotten."""
        return {
            "string": {*self._strings.values(), *self._comms.values()},
            "kernel": {*self._kernels.values()},
        }

    def take_counts(self) -> tuple[int, int]:
        """How many names came, and how many had no room."""
        counts, self.added, self.left_out = (self.added, self.left_out), 0, 0
        return counts

    def _full(self, table: str) -> bool:
        if self._most is None:
            return False
        if table not in self._counts:
            self._counts[table] = self._connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
        return self._counts[table] >= self._most

    def string(self, text: str) -> int:
        known = self._strings.get(text)
        if known is None:
            self._connection.execute("INSERT OR IGNORE INTO string (text) VALUES (?)", (text,))
            found = self._connection.execute("SELECT id FROM string WHERE text = ?", (text,)).fetchone()
            known = self._strings[text] = int(found[0])
        return known

    def comm(self, raw: bytes, pid: int = 0) -> int:
        known = self._comms.get(raw)
        if known is None:
            text = clean(raw, COMM_LIMIT)
            if not self._room(text, pid):
                self.left_out += 1
                return self.string(OTHERS)
            known = self._comms[raw] = self.string(text)
        return known

    def _room(self, text: str, pid: int) -> bool:
        """Whether the name is known, or the process may bring another one."""
        if self._most is None or text in self._strings:
            return True
        if self._connection.execute("SELECT 1 FROM string WHERE text = ?", (text,)).fetchone():
            return True
        if self._full("string") or self._new_of[pid] >= PER_PROCESS:
            return False
        self._counts["string"] += 1
        self.added += 1
        self._new_of[pid] += 1
        return True

    def comms(self, raw: NDArray[np.bytes_], pids: NDArray[np.integer]) -> NDArray[np.int64]:
        """The number of each command name; the processes they are of pay for new ones."""
        distinct, first, inverse = np.unique(raw, return_index=True, return_inverse=True)
        pairs = zip(distinct.tolist(), pids[first].tolist(), strict=True)
        numbers = np.fromiter((self.comm(name, pid) for name, pid in pairs), np.int64, len(distinct))
        return numbers[inverse]

    def kernel(self, name: KernelName) -> int:
        known = self._kernels.get(name)
        if known is None:
            if self._full("kernel") and not self._has_kernel(name):
                self.left_out += 1
                return 0
            if self._most is not None:
                self._counts["kernel"] += 1
                self.added += 1
            self._connection.execute(
                "INSERT OR IGNORE INTO kernel (name, short, known) VALUES (?, ?, ?)",
                (name.text, name.short, name.known),
            )
            found = self._connection.execute("SELECT id FROM kernel WHERE name = ?", (name.text,)).fetchone()
            known = self._kernels[name] = int(found[0])
        return known

    def _has_kernel(self, name: KernelName) -> bool:
        row = self._connection.execute("SELECT 1 FROM kernel WHERE name = ?", (name.text,)).fetchone()
        return row is not None

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


def most_names(max_bytes: int) -> int:
    """How many fit into a database of that size; 0: of any size."""
    return min(MOST, max(FEWEST, max_bytes // BYTES_PER_NAME)) if max_bytes else MOST


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
