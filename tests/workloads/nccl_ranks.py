"""R ranks, each a process: a communicator, collectives on it, a split, and the end.

    nccl_ranks.py [--ranks R] [--rounds N] [--late-rank K --late-ms MS] [--absent-rank K] [--early]

Prints `ready PID`, waits for a line, starts the ranks, prints one JSON line for each
call of each rank (rank, size, the id as hex, function, bytes, datatype, peer, times),
then `done`, and waits for another line. A late rank comes late to every round; an
absent rank makes no collective before another line comes, and the others wait for it. With
--early the communicators and their splits are made before `ready` is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ID_FILE = "id"


def as_rank(rank: int, options: argparse.Namespace, meeting: Path) -> None:
    """The life of one rank."""
    from ingero.scenarios import cuda

    runtime, nccl = cuda.stub_runtime(), cuda.stub_nccl()
    devices = ctypes.c_int()
    runtime.cudaGetDeviceCount(ctypes.byref(devices))
    runtime.cudaSetDevice(rank % devices.value)
    buffer, stream = runtime.malloc(1 << 20), runtime.stream()
    unique, comm, half = shared_id(nccl, rank, meeting), ctypes.c_void_p(), ctypes.c_void_p()
    named = bytes(unique.internal).hex()

    def call(name: str, *arguments: Any, **said: Any) -> None:
        before_ns = time.monotonic_ns()
        status = nccl.try_call(name, *arguments)
        facts = {"function": name, "rank": rank, "size": options.ranks, "id": named, "ret": status}
        times = {"before_ns": before_ns, "after_ns": time.monotonic_ns()}
        thread = {"pid": os.getpid(), "tid": threading.get_native_id()}
        os.write(1, (json.dumps({**facts, **thread, **times, **said}) + "\n").encode())

    if options.early:
        nccl.ncclCommInitRank(ctypes.byref(comm), options.ranks, unique, rank)
        nccl.ncclCommSplit(comm, rank % 2, rank, ctypes.byref(half), None)
        options.gate.wait()
    else:
        call("ncclCommInitRank", ctypes.byref(comm), options.ranks, unique, rank)
    if rank == options.absent_rank:
        os.read(0, 1)
    right, left = (rank + 1) % options.ranks, (rank - 1) % options.ranks
    for _ in range(options.rounds):
        if rank == options.late_rank:
            time.sleep(options.late_ms / 1e3)
        call(
            "ncclAllReduce", buffer, buffer, 1000, cuda.NCCL_FLOAT32, cuda.NCCL_SUM, comm, stream,
            comm=comm.value, bytes=4000, datatype=cuda.NCCL_FLOAT32, op=cuda.NCCL_SUM,
        )  # fmt: skip
        call("ncclBroadcast", buffer, buffer, 512, cuda.NCCL_INT8, 0, comm, stream,
             comm=comm.value, bytes=512, datatype=cuda.NCCL_INT8, root=0)  # fmt: skip
        call("ncclGroupStart")
        call("ncclSend", buffer, 64, cuda.NCCL_FLOAT32, right, comm, stream,
             comm=comm.value, bytes=256, datatype=cuda.NCCL_FLOAT32, peer=right)  # fmt: skip
        call("ncclRecv", buffer, 64, cuda.NCCL_FLOAT32, left, comm, stream,
             comm=comm.value, bytes=256, datatype=cuda.NCCL_FLOAT32, peer=left)  # fmt: skip
        call("ncclGroupEnd")
        runtime.cudaStreamSynchronize(stream)
    if options.early:
        call(
            "ncclAllReduce",
            buffer,
            buffer,
            10,
            cuda.NCCL_FLOAT32,
            cuda.NCCL_SUM,
            half,
            stream,
            comm=half.value,
        )
    call("ncclCommSplit", comm, rank % 2, rank, ctypes.byref(half), None)
    call("ncclCommDestroy", half)
    call("ncclCommDestroy", comm)


def shared_id(nccl: Any, rank: int, meeting: Path) -> Any:
    """Rank 0 makes the id and leaves it in a file; the others pick it up."""
    from ingero.scenarios import cuda

    unique, file = cuda.UniqueId(), meeting / ID_FILE
    if rank == 0:
        nccl.ncclGetUniqueId(ctypes.byref(unique))
        (meeting / "new").write_bytes(bytes(unique))
        (meeting / "new").rename(file)
    while not file.exists():
        time.sleep(0.001)
    return cuda.UniqueId.from_buffer_copy(file.read_bytes())


class Gate:
    """Where ranks wait until the first of their parents' lines has come."""

    def __init__(self, ranks: int) -> None:
        self._ranks, self._come, self._go = ranks, os.pipe(), os.pipe()

    def wait(self) -> None:
        os.write(self._come[1], b".")
        os.read(self._go[0], 1)

    def all_come(self) -> None:
        for _ in range(self._ranks):
            os.read(self._come[0], 1)

    def open(self) -> None:
        os.write(self._go[1], b"." * self._ranks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--late-rank", type=int, default=-1)
    parser.add_argument("--late-ms", type=float, default=0)
    parser.add_argument("--absent-rank", type=int, default=-1)
    parser.add_argument("--early", action="store_true")
    options = parser.parse_args()
    options.gate = Gate(options.ranks)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("INGERO_STUB_DEVICE", f"{folder}/device")
        children = [start(rank, options, Path(folder)) for rank in range(options.early * options.ranks)]
        if children:
            options.gate.all_come()
        print("ready", os.getpid(), flush=True)
        sys.stdin.readline()
        options.gate.open()
        children = children or [start(rank, options, Path(folder)) for rank in range(options.ranks)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print("done", flush=True)
        sys.stdin.readline()
    sys.exit(max(codes))


def start(rank: int, options: argparse.Namespace, meeting: Path) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            as_rank(rank, options, meeting)
            code = 0
        finally:
            os._exit(code)
    return child


if __name__ == "__main__":
    main()
