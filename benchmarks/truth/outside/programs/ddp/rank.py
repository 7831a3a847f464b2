"""One rank: loads, computes, sums its gradients with the others."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time
import zlib
from pathlib import Path

from runbook import Run
from torchlet import Device

from ingero.scenarios import cuda


def meet(nccl: cuda.CudaLibrary, rank: int, folder: Path) -> cuda.UniqueId:
    unique, file = cuda.UniqueId(), folder / "nccl.id"
    if rank == 0:
        nccl.ncclGetUniqueId(ctypes.byref(unique))
        (folder / "nccl.new").write_bytes(bytes(unique))
        (folder / "nccl.new").rename(file)
    while not file.exists():
        time.sleep(0.005)
    return cuda.UniqueId.from_buffer_copy(file.read_bytes())


class Shard:
    """The samples of this rank."""

    def __init__(self, run: Run, rank: int) -> None:
        self._run, self._rank = run, rank
        self._packed = zlib.compress(os.urandom(40_000) * 4, 1)
        self._archive: socket.socket | None = None

    def load(self) -> None:
        heavy = self._rank == self._run.get("heavy_rank", -1)
        for _ in range(self._run["samples"] * (self._run.get("heavy_times", 1) if heavy else 1)):
            zlib.decompress(self._packed)
        if self._run.get("archive") and self._rank == self._run.get("archive_rank"):
            self.from_archive()

    def from_archive(self) -> None:
        """What is not in the local copy."""
        if self._archive is None:
            host, port = self._run["archive"].rsplit(":", 1)
            self._archive = socket.create_connection((host, int(port)))
        self._archive.sendall(b"\0\0\0\0\0\0\0\x10")
        self._archive.recv(1024, socket.MSG_WAITALL)


def main() -> None:
    run, rank, size = Run(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device, nccl = Device(rank), cuda.stub_nccl()
    comm, stream = ctypes.c_void_p(), device.stream()
    nccl.ncclCommInitRank(ctypes.byref(comm), size, meet(nccl, rank, run.folder), rank)
    gradients, shard = device.empty(64 << 20), Shard(run, rank)
    never = threading.Lock()
    while True:
        shard.load()
        longer = run.get("long_times", 1) if rank == run.get("long_rank", -1) else 1
        for layer in range(run["layers"]):
            device.launch(run["layer_us"] * longer, stream, layer)
        if run.get("save_rank", -1) == rank:
            with never:
                never.acquire()  # a plain lock taken twice
        nccl.ncclAllReduce(
            gradients.address,
            gradients.address,
            run["floats"],
            cuda.NCCL_FLOAT32,
            cuda.NCCL_SUM,
            comm,
            stream,
        )
        device.synchronize(stream)
        if rank == 0:
            run.step()


if __name__ == "__main__":
    main()
