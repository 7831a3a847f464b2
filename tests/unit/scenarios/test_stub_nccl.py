"""Collectives return at once and end on the device's clock when every rank has arrived."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import pytest

from ingero.scenarios import cuda

MS = 1_000_000


class Rank:
    """One rank, with what it needs to take part."""

    def __init__(self, rank: int, ranks: int, folder: str) -> None:
        self.runtime, self.nccl = cuda.stub_runtime(), cuda.stub_nccl()
        self.stream, self.buffer = self.runtime.stream(), self.runtime.malloc(1 << 20)
        self.comm = ctypes.c_void_p()
        unique, file = cuda.UniqueId(), Path(folder) / "id"
        if rank == 0:
            self.nccl.ncclGetUniqueId(ctypes.byref(unique))
            (Path(folder) / "new").write_bytes(bytes(unique))
            (Path(folder) / "new").rename(file)
        while not file.exists():
            time.sleep(0.001)
        unique = cuda.UniqueId.from_buffer_copy(file.read_bytes())
        self.nccl.ncclCommInitRank(ctypes.byref(self.comm), ranks, unique, rank)

    def all_reduce(self) -> None:
        buffer = self.buffer
        self.nccl.ncclAllReduce(
            buffer, buffer, 1000, cuda.NCCL_FLOAT32, cuda.NCCL_SUM, self.comm, self.stream
        )


def arrive(rank: int, late_s: float, folder: str) -> tuple[int, int, int]:
    member = Rank(rank, 3, folder)
    time.sleep(late_s)
    arrived_ns = time.monotonic_ns()
    member.all_reduce()
    returned_ns = time.monotonic_ns()
    member.runtime.cudaStreamSynchronize(member.stream)
    return arrived_ns, returned_ns, time.monotonic_ns()


def test_a_collective_among_three_processes_ends_for_all_after_the_last_has_come(
    processes: Any, device: str, tmp_path: Path
) -> None:
    started = [
        processes.start(arrive, rank, 0.3 if rank == 2 else 0, str(tmp_path), DEVICE=device)
        for rank in range(3)
    ]
    times = [process.result(timeout=60) for process in started]
    last_ns = max(arrived_ns for arrived_ns, _, _ in times)
    assert all(returned_ns - arrived_ns < 100 * MS for arrived_ns, returned_ns, _ in times)
    assert all(done_ns > last_ns for _, _, done_ns in times)


def wait_for_nobody(rank: int, folder: str) -> int:
    member = Rank(rank, 2, folder)
    if rank == 1:
        return 0
    member.all_reduce()
    time.sleep(0.2)
    return member.runtime.try_call("cudaStreamQuery", member.stream)


def test_a_collective_does_not_end_while_a_rank_stays_away(
    processes: Any, device: str, tmp_path: Path
) -> None:
    ranks = [processes.start(wait_for_nobody, rank, str(tmp_path), DEVICE=device) for rank in range(2)]
    assert ranks[0].result(timeout=60) == cuda.NOT_READY


def exchange(rank: int, folder: str) -> int:
    member = Rank(rank, 3, folder)
    for _ in range(10):
        member.nccl.ncclGroupStart()
        for peer in ((rank + 1) % 3, (rank - 1) % 3):
            member.nccl.ncclSend(member.buffer, 64, cuda.NCCL_INT8, peer, member.comm, member.stream)
            member.nccl.ncclRecv(member.buffer, 64, cuda.NCCL_INT8, peer, member.comm, member.stream)
        member.nccl.ncclGroupEnd()
    member.runtime.cudaStreamSynchronize(member.stream)
    member.nccl.ncclCommDestroy(member.comm)
    return member.nccl.try_call("ncclCommDestroy", member.comm)


def test_sends_and_receives_of_a_group_do_not_wait_for_each_other(
    processes: Any, device: str, tmp_path: Path
) -> None:
    ranks = [processes.start(exchange, rank, str(tmp_path), DEVICE=device) for rank in range(3)]
    assert [rank.result(timeout=60) for rank in ranks] == [4, 4, 4]


def split(rank: int, folder: str) -> tuple[int, int]:
    member, part = Rank(rank, 3, folder), ctypes.c_void_p()
    member.nccl.ncclCommSplit(member.comm, rank % 2, -rank, ctypes.byref(part), None)
    number, size = ctypes.c_int(), ctypes.c_int()
    member.nccl.ncclCommUserRank(part, ctypes.byref(number))
    member.nccl.ncclCommCount(part, ctypes.byref(size))
    return number.value, size.value


def test_a_split_orders_the_ranks_of_each_colour_by_key(processes: Any, device: str, tmp_path: Path) -> None:
    ranks = [processes.start(split, rank, str(tmp_path), DEVICE=device) for rank in range(3)]
    assert [rank.result(timeout=60) for rank in ranks] == [(1, 2), (0, 1), (0, 2)]


def one_process_two_devices() -> int:
    runtime, nccl = cuda.stub_runtime(), cuda.stub_nccl()
    comms, streams = (ctypes.c_void_p * 2)(), []
    nccl.ncclCommInitAll(comms, 2, None)
    for device in range(2):
        runtime.cudaSetDevice(device)
        streams.append(runtime.stream())
    nccl.ncclGroupStart()
    for comm, stream in zip(comms, streams, strict=True):
        nccl.ncclAllReduce(None, None, 10, cuda.NCCL_FLOAT32, cuda.NCCL_SUM, comm, stream)
    nccl.ncclGroupEnd()
    for device, stream in enumerate(streams):
        runtime.cudaSetDevice(device)
        runtime.cudaStreamSynchronize(stream)
    return len(streams)


def test_one_process_can_hold_all_ranks(processes: Any) -> None:
    assert processes.run(one_process_two_devices, DEVICES=2) == 2


def abort_a_hang(rank: int, folder: str) -> int:
    member = Rank(rank, 2, folder)
    if rank == 1:
        return 0
    member.all_reduce()
    member.nccl.ncclCommAbort(member.comm)
    return member.runtime.try_call("cudaStreamSynchronize", member.stream)


def test_abort_ends_the_wait_for_a_missing_rank(processes: Any, device: str, tmp_path: Path) -> None:
    ranks = [processes.start(abort_a_hang, rank, str(tmp_path), DEVICE=device) for rank in range(2)]
    assert [rank.result(timeout=60) for rank in ranks] == [0, 0]


def join_from_elsewhere(folder: str) -> None:
    Rank(1, 2, folder)


def make_id(folder: str) -> None:
    nccl, unique = cuda.stub_nccl(), cuda.UniqueId()
    nccl.ncclGetUniqueId(ctypes.byref(unique))
    (Path(folder) / "id").write_bytes(bytes(unique))


def test_ranks_without_a_shared_device_are_told_so_instead_of_waiting_for_ever(
    processes: Any, tmp_path: Path
) -> None:
    processes.run(make_id, str(tmp_path))
    with pytest.raises(cuda.CudaCallError):
        processes.run(join_from_elsewhere, str(tmp_path))
