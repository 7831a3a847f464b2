"""Recordings of nodes whose ranks meet once a step, written as an agent writes them."""

from __future__ import annotations

from pathlib import Path

from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, call, culprit, operation, process, thread, window

MS = 1_000_000
STEP_MS, STEPS = 100, 10  # in a second
LATE_MS = 41
COMM = 77
HOG = 200


def record_rank(
    path: Path, node: str, rank: int, nranks: int, late_rank: int, ahead_ms: float = 0.0, seconds: int = 12
) -> Path:
    """One rank on one node; the late one waits for a core that log-shipper has."""
    late_ms = LATE_MS if rank == late_rank else 0
    time = FakeTime()
    time.wall_ns += int(ahead_ms * MS)
    with Writer(path, node, time.clock(), OPERATIONS, cores=8) as writer:
        for at in range(seconds):
            calls, waits = [], []
            for step in range(STEPS):
                start_ns = at * SECOND + step * STEP_MS * MS + 20 * MS + rank * 50_000
                end_ns = (
                    at * SECOND + step * STEP_MS * MS + (20 + LATE_MS + 5) * MS + (at * step % 7) * 20_000
                )
                came_ns = start_ns + late_ms * MS
                waits.append(end_ns - came_ns - 10_000)
                seq = at * STEPS + step
                calls += [
                    call("ncclAllReduce", 5_000, at_ns=came_ns, bytes=1 << 20, args=(0, 0, 1 << 18, 7, 0),
                         comm_hash=COMM, seq=seq, rank=rank, nranks=nranks),
                    call("cudaStreamSynchronize", waits[-1], at_ns=came_ns + 10_000,
                         time={"gpu_wait": waits[-1]}),
                ]  # fmt: skip
            taken = late_ms * STEPS * MS * 9 // 10
            seen = window(
                at * SECOND,
                calls=calls,
                operations=[
                    operation("cudaStreamSynchronize", waits),
                    operation("ncclAllReduce", [5_000] * STEPS),
                ],
                threads=[
                    thread(gpu_wait=SECOND - taken - SECOND // 10, host_cpu=SECOND // 10, runqueue=taken)
                ],
                culprits=[culprit(pid=HOG, comm="log-shipper", ns=taken)],
                processes=[process(rank=rank, world_size=nranks)],
                bystanders=[process(HOG, comm="log-shipper", target=False)] if taken else (),
            )
            assert writer.write(seen) == ""
        time.advance(seconds * SECOND)
    return path
