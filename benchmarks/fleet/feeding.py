"""Thousands of made-up agents in one process; every request is a real one."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import random
import time
from dataclasses import dataclass, field

from ingero.fleet.collector.credentials import token_for
from ingero.fleet.push import otlp
from ingero.model.fleet import GpuHealth, Health, JobHealth

BUCKETS = ("cuda_cpu", "host_cpu", "runqueue", "gpu_wait", "net_wait", "sleep")
RUN = "00000000000000aa"
SECRET = b"a-secret-of-the-benchmark"
TOKEN = token_for(SECRET, "*").encode()


def health(node: int, number: int, at_ns: int) -> Health:
    """A node with eight GPUs and eight ranks, as a training node is."""
    chance = random.Random(node * 1_000_003 + number)
    gpus = [
        GpuHealth(
            gpu, "NVIDIA H200", f"GPU-{node:06}-{gpu}", chance.uniform(0.7, 1.0),
            chance.randint(60 << 30, 120 << 30), 140 << 30, 1.98e9 + chance.randint(-3, 3) * 1.5e7,
            chance.uniform(400, 690), chance.uniform(45, 80), 0.0,
        )
        for gpu in range(8)
    ]  # fmt: skip
    jobs = [
        JobHealth(
            4000 + rank, "python", "8d1f0c2b9a3e4f57", f"slurm-{node // 16}", node % 16 * 8 + rank, 128, "",
            f"train-{node}", f"team-{node % 20}", "gpu", chance.uniform(3.9, 4.1), 4.0,
            chance.uniform(0.7, 1.0),
            {bucket: round(chance.uniform(0.1, 3.0), 6) for bucket in BUCKETS},
        )
        for rank in range(8)
    ]  # fmt: skip
    return Health(
        f"gpu-node-{node:05}", at_ns, at_ns - 10**10, f"cluster-{node % 4}", "1.0", RUN, number,
        chance.random(), 0.5, 8, 0, 0.01, 0.1, 0, gpus, jobs,
    )  # fmt: skip


@dataclass
class Fed:
    """What became of the requests."""

    taken: set[tuple[int, int]] = field(default_factory=set)
    requests: int = 0
    cut: int = 0
    later: int = 0
    bytes: int = 0
    longest_behind_s: float = 0.0  # a batch was sent so long after it was due
    latencies_s: list[float] = field(default_factory=list)


async def feed(
    port: int,
    work: list[tuple[int, int, bytes]],
    at_once: int,
    cut_share: float,
    fed: Fed,
    per_s: float | None = None,
) -> None:
    """Send every batch until it is taken; a share of the answers is not waited for.

    `per_s`: so many batches become due in a second; None: as fast as they are taken.
    """
    started = time.perf_counter()
    waiting: asyncio.Queue[tuple[int, int, bytes]] = asyncio.Queue()
    for each in work:
        waiting.put_nowait(each)
    due = itertools.count()
    chance = random.Random(5)

    async def one() -> None:
        streams = None
        while not waiting.empty():
            node, number, body = waiting.get_nowait()
            if per_s:
                ahead_s = started + next(due) / per_s - time.perf_counter()
                fed.longest_behind_s = max(fed.longest_behind_s, -ahead_s)
                await asyncio.sleep(max(0.0, ahead_s))
            while (node, number) not in fed.taken:
                try:
                    if streams is None:
                        streams = await asyncio.open_connection("127.0.0.1", port)
                    began = time.perf_counter()
                    status = await _post(*streams, body, cut=chance.random() < cut_share)
                except (OSError, asyncio.IncompleteReadError):
                    status = None
                fed.requests += 1
                fed.bytes += len(body)
                if status == 200:
                    fed.taken.add((node, number))
                    fed.latencies_s.append(time.perf_counter() - began)
                    continue
                if status is None:
                    fed.cut += 1
                    if streams is not None:
                        streams[1].close()
                    streams = None
                else:
                    fed.later += 1
                await asyncio.sleep(0.05 if status is None else 0.2)
        if streams is not None:
            streams[1].close()

    await asyncio.gather(*(one() for _ in range(at_once)))


async def _post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes, cut: bool
) -> int | None:
    writer.write(
        b"POST /v1/metrics HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-protobuf\r\n"
        b"content-encoding: gzip\r\nauthorization: Bearer "
        + TOKEN
        + b"\r\ncontent-length: "
        + str(len(body)).encode()
        + b"\r\n\r\n"
        + body
    )
    await writer.drain()
    if cut:  # it arrives, and nobody hears the answer
        await reader.read(1)
        return None
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    await reader.readexactly(length)
    return int(head.split()[1])


def packed(node: int, number: int, at_ns: int) -> bytes:
    return gzip.compress(otlp.metrics(health(node, number, at_ns)), 1)
