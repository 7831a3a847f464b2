"""Records as the kernel side sends them, with anything in them, all the way into a database.

An input is what a ring would hold, one record after the other; the type in each header
says how long it is. Names, texts and arguments are the traced process's own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.fuzz.target import Try
from ingero.agent.candidates import StartedPrograms
from ingero.agent.gpus import number_cards
from ingero.capture.code_objects import line_at
from ingero.capture.kernel_names import KernelBook
from ingero.capture.operations import with_uncounted
from ingero.capture.ring import FRAMES_ROOM, ROOM
from ingero.capture.stacks import StackBook
from ingero.capture.threads import ThreadBook, mark_gil
from ingero.model import layout
from ingero.model.layout import RecordType
from ingero.model.stack import NativeFrame
from ingero.model.window import Process, Window
from ingero.native.demangle import demangle
from ingero.serve.answers.live import LiveTotals
from ingero.store.writer import Writer
from tests import builders
from tests.builders import OPERATIONS, SECOND, fixed_clock

KINDS = {int(kind): dtype for room in (ROOM, FRAMES_ROOM) for kind, (dtype, _) in room.items()}
TYPE_AT = 8 if layout.HEADER.fields is None else int(layout.HEADER.fields["type"][1])
RENEW = 2000  # inputs in one database
MAX_DB_BYTES = 2 << 20


def ring_bytes(*records: NDArray[np.void]) -> bytes:
    """Records with their type in the header."""
    parts = []
    for record in records:
        (number,) = (kind for kind, dtype in KINDS.items() if dtype == record.dtype)
        head = record["head"]["h"] if "head" in (record.dtype.names or ()) else record["h"]
        head["type"] = number
        parts.append(record.tobytes())
    return b"".join(parts)


def split(raw: bytes) -> dict[int, NDArray[np.void]]:
    """What a ring with these bytes gives, by type; ends at the first that is none of ours."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at + TYPE_AT + 2 <= len(raw):
        number = int.from_bytes(raw[at + TYPE_AT : at + TYPE_AT + 2], "little")
        size = KINDS[number].itemsize if number in KINDS else 0
        if not size or at + size > len(raw):
            break
        found.setdefault(number, []).append(raw[at : at + size])
        at += size
    return {kind: np.frombuffer(b"".join(found.get(kind, [])), dtype).copy() for kind, dtype in KINDS.items()}


def rings() -> Sequence[bytes]:
    names = np.zeros(2, layout.NAME)
    names["h"]["pid"], names["handle"], names["text"], names["length"] = 100, (1, 2), b"_Z3mulv", 7
    names["op"] = builders.NUMBERS["cuLaunchKernel"]
    stack, code = np.zeros(1, layout.STACK), np.zeros(1, layout.CODE)
    stack["h"]["pid"], stack["id"], stack["python_count"], stack["python_depth"] = 100, 7, 1, 1
    stack["python"][0][0] = (4096, 2, 5)
    head = code["head"][0]
    head["h"]["pid"], head["code"], head["sign"], head["minor"] = 100, 4096, 5, 13
    head["name"]["unit"] = head["file"]["unit"] = 1
    head["name"]["bytes"] = head["file"]["bytes"] = 8
    code["data"][0][:16] = np.frombuffer(b"forward\0train.py", np.uint8)
    started = np.zeros(1, layout.STARTED)
    started["h"]["pid"], started["text"] = 100, b"python\0train.py\0"
    calls = [builders.call(op, at_ns=10, args=(1,)) for op in builders.NUMBERS]
    return [
        ring_bytes(*calls),
        ring_bytes(builders.wait(), builders.wait("disk_wait", waker="kworker"), builders.block()),
        ring_bytes(builders.retransmit(), builders.oom(), builders.xid(), builders.in_flight()),
        ring_bytes(stack, code, builders.call(at_ns=3)),
        ring_bytes(names[:1], names[1:], builders.call("cuLaunchKernel", args=(1,))),
        ring_bytes(
            started, builders.in_flight(), builders.call("ncclAllReduce", comm_hash=9, rank=1, nranks=2)
        ),
    ]


class Pipeline:
    """What the agent does with a second of records."""

    def __init__(self, db: Path) -> None:
        self.writer = Writer(db, "n1", fixed_clock(), OPERATIONS, MAX_DB_BYTES)
        self.totals = LiveTotals(OPERATIONS, "n1")
        self.kernels = KernelBook(OPERATIONS, _nameless, _nameless, lambda _pid, names: demangle(names))
        self.stacks = StackBook(_frames_at, line_at)
        self.threads = ThreadBook()
        self.started = StartedPrograms()
        self.at_ns = 0

    def second(self, found: dict[int, NDArray[np.void]]) -> None:
        window = Window(self.at_ns, self.at_ns + SECOND)
        self.at_ns += SECOND
        window.calls, window.waits = found[RecordType.REC_CALL], found[RecordType.REC_WAIT]
        window.blocks, window.tcp = found[RecordType.REC_BLOCK], found[RecordType.REC_TCP]
        window.ooms, window.xids = found[RecordType.REC_OOM], found[RecordType.REC_XID]
        window.in_flight = found[RecordType.REC_THREAD]
        window.execs = found[RecordType.REC_PROCESS]
        number_cards(window.calls, {100: (3, 4), 200: None})
        mark_gil(window, {100: (4096, 8192)})
        window.operations = with_uncounted(window.operations, window.calls)
        window.threads = self.threads.update(found[RecordType.REC_THREAD], window.start_ns)
        self.started.hear(found[RecordType.REC_STARTED])
        self._name(window, found)
        window.processes = [Process(100, 0, "python", "python train.py", 0, 1000)]
        self.totals.add(window)
        self.totals.view(window.end_ns, window.end_ns)
        if why := self.writer.write(window):
            raise AssertionError(f"it was not stored: {why}")

    def _name(self, window: Window, found: dict[int, NDArray[np.void]]) -> None:
        self.kernels.hear(found[RecordType.REC_NAME])
        numbers = self.kernels.name_calls(window.calls)
        window.kernels = self.kernels.names(numbers)
        self.stacks.add(
            found[RecordType.REC_STACK], found[RecordType.REC_CODE], found[RecordType.REC_CODE_LONG]
        )
        window.call_stacks = self.stacks.resolve(window.calls["stack_id"])
        window.stacks = self.stacks.take_new()


def _nameless(_pid: int, addresses: Sequence[int]) -> list[None]:
    return [None for _ in addresses]


def _frames_at(_pid: int, addresses: NDArray[np.uint64], _start_ns: int) -> list[NativeFrame | None]:
    return [
        NativeFrame(f"at{each}", "/lib/libx.so", each) if each % 2 else None for each in addresses.tolist()
    ]


@contextmanager
def read_records() -> Iterator[Try]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="fuzz-") as folder:
        used, line = 0, Pipeline(Path(folder) / "0.db")

        def attempt(data: bytes) -> None:
            nonlocal used, line
            used += 1
            if used % RENEW == 0:
                line.writer.close()
                line.writer.path.unlink()
                line = Pipeline(Path(folder) / f"{used}.db")
            line.second(split(data))

        yield attempt
        line.writer.close()
