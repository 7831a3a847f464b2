"""A collective on something that is no communicator, or hardly one.

    stray_comms.py sound|torn|no-magic|rank-too-large|no-ranks|device|no-hash

Prints `ready PID`, waits for a line, calls ncclAllReduce (which refuses), prints what it
passed as JSON and `done`, and waits for another line. Where things lie is learnt as a
stranger would: by changing one word after the other and asking NCCL's own functions.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import sys

from ingero.scenarios import cuda

ROOM = 1 << 20
MAGIC = 0x0280028002800280


def rank_place(nccl: cuda.CudaLibrary) -> int:
    """Where the stub has the rank: a real communicator is looked through for what differs."""
    unique, comm, rank = cuda.UniqueId(), ctypes.c_void_p(), ctypes.c_int()
    nccl.ncclGetUniqueId(ctypes.byref(unique))
    nccl.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0)
    assert comm.value is not None
    size = 0x13000
    words = (ctypes.c_int * (size // 4)).from_address(comm.value)
    for at in range(16, len(words)):
        before, words[at] = words[at], 0x5EED
        nccl.ncclCommUserRank(comm, ctypes.byref(rank))
        words[at] = before
        if rank.value == 0x5EED:
            return at * 4
    raise SystemExit("no rank in the communicator")


def main() -> None:
    kind = sys.argv[1]
    runtime, nccl = cuda.stub_runtime(), cuda.stub_nccl()
    buffer, stream, place = runtime.malloc(4096), runtime.stream(), rank_place(nccl)
    memory = mmap.mmap(-1, ROOM)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    rank, ranks, device, hash_ = 2, 3, 0, 0x1234
    rank = 3 if kind == "rank-too-large" else rank
    ranks = 0 if kind == "no-ranks" else ranks
    device = -1 if kind == "device" else device
    hash_ = 0 if kind == "no-hash" else hash_
    struct.pack_into("<Q", memory, 0, 0 if kind == "no-magic" else MAGIC)
    struct.pack_into("<Qiii", memory, place - 8, hash_, rank, ranks, device)
    comm = start
    if kind == "torn":  # its first page is mapped, the rest is not
        ctypes.CDLL(None).munmap(ctypes.c_void_p(start + mmap.PAGESIZE), ROOM - mmap.PAGESIZE)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    status = nccl.try_call(
        "ncclAllReduce", buffer, buffer, 10, cuda.NCCL_FLOAT32, cuda.NCCL_SUM, ctypes.c_void_p(comm), stream
    )
    print(json.dumps({"comm": comm, "ret": status}), flush=True)
    print("done", flush=True)
    sys.stdin.readline()
    os._exit(0)  # what was unmapped is not ours to give back


if __name__ == "__main__":
    main()
