"""What a step does besides its work once the trouble has begun, by name.

Each maker takes the amount and returns what is called after every step. A comment
`# at: NAME` marks the lines an answer may point to.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

kept: list[Any] = []
Trouble = Callable[[], object]


def compute(seconds: float) -> int:
    """Python work, as decoding or augmenting is."""
    until = time.perf_counter() + seconds
    turns = 0
    while time.perf_counter() < until:  # at: decode slow-worker slow-item crowd locked
        turns += 1  # at: decode slow-worker slow-item crowd locked
    return turns


def decode(ms: float) -> Trouble:
    return lambda: compute(ms / 1e3)  # at: decode


def pageable(mib: float) -> Trouble:
    batch = torch.ones(int(mib) << 18)
    return lambda: batch.cuda()  # at: pageable


def fetch_activations(mib: float) -> Trouble:
    outputs = torch.ones(int(mib) << 18, device="cuda")

    def read() -> object:
        return outputs.cpu()  # at: fetch-activations

    return read


def many_copies(count: float) -> Trouble:
    parts = [torch.ones(256) for _ in range(int(count))]

    def send() -> object:
        return [part.cuda() for part in parts]  # at: many-copies

    return send


def items(count: float) -> Trouble:
    values = torch.ones(4096, device="cuda")

    def read() -> float:
        total = 0.0
        for number in range(int(count)):
            total += values[number].item()  # at: items
        return total

    return read


def synchronise(count: float) -> Trouble:
    values = torch.ones(1 << 16, device="cuda")

    def turns() -> None:
        for _ in range(int(count)):
            values.mul_(1.0)  # at: synchronise
            torch.cuda.synchronize()  # at: synchronise

    return turns


def tiny(count: float) -> Trouble:
    values = torch.zeros(64, device="cuda")

    def many() -> None:
        for _ in range(int(count)):
            values.add_(1)  # at: tiny

    return many


def empty_cache(count: float) -> Trouble:
    def churn() -> None:
        for _ in range(int(count)):
            scratch = torch.empty(96 << 20, dtype=torch.uint8, device="cuda")  # at: empty-cache
            del scratch
            torch.cuda.empty_cache()  # at: empty-cache

    return churn


def leak(mib: float) -> Trouble:
    def remember() -> None:
        kept.append(torch.empty(int(mib) << 20, dtype=torch.uint8, device="cuda"))  # at: leak

    return remember


def out_of_memory(_: float) -> Trouble:
    """Asks for more than there is, and tries again with half."""
    free, _total = torch.cuda.mem_get_info()

    def attempt() -> None:
        for part in (2.0, 1.5, 0.01):
            try:
                scratch = torch.empty(int(part * free), dtype=torch.uint8, device="cuda")  # at: out-of-memory
                del scratch
            except torch.cuda.OutOfMemoryError:
                continue

    return attempt


def recapture(count: float) -> Trouble:
    values = torch.ones(256, 256, device="cuda")

    def capture() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # at: recapture
            out = values
            for _ in range(int(count)):
                out = out @ values  # at: recapture
        graph.replay()

    return capture


def collect(objects: float) -> Trouble:
    kept.append([[number] for number in range(int(objects))])
    return lambda: gc.collect()  # at: collect


def hold_the_lock(_: float) -> Trouble:
    def count() -> None:
        number = 0
        while True:
            number += 1  # at: hold-the-lock

    threading.Thread(target=count, daemon=True).start()
    return lambda: None


def locked(ms: float) -> Trouble:
    """A thread prepares something under a lock that the loop needs, too."""
    lock, asked, ready = threading.Lock(), threading.Event(), threading.Event()

    def prepare() -> None:
        while True:
            asked.wait()
            asked.clear()
            with lock:
                compute(ms / 1e3)  # at: locked
            ready.set()

    threading.Thread(target=prepare, daemon=True).start()

    def wait() -> None:
        asked.set()
        ready.wait()  # at: locked
        ready.clear()

    return wait


def notes(kib: float) -> Trouble:
    """A line of notes in every step, written through to the disk."""
    path = Path(os.environ["SCRATCH"]) / "notes"
    text = os.urandom(int(kib) << 10)

    def write() -> None:
        with path.open("wb") as file:
            file.write(text)  # at: notes
            file.flush()  # at: notes
            os.fsync(file.fileno())  # at: notes

    return write


def read_cold(mib: float) -> Trouble:
    """Reads its input from the disk, never from the page cache."""
    path = Path(os.environ["SCRATCH"]) / "input"
    size = int(mib) << 20
    path.write_bytes(os.urandom(1 << 20) * (size >> 20))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)

    def read() -> int:
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
        return len(os.pread(descriptor, size, 0))  # at: read-cold

    return read


def checkpoints(mib: float, every: int = 25) -> Trouble:
    path = Path(os.environ["SCRATCH"]) / "checkpoint"
    weights = os.urandom(1 << 20) * int(mib)
    turn = 0

    def save() -> None:
        nonlocal turn
        turn += 1
        if turn % every == 0:
            with path.open("wb") as file:
                file.write(weights)  # at: checkpoints
                file.flush()  # at: checkpoints
                os.fsync(file.fileno())  # at: checkpoints

    return save


def spikes(ms: float, every_s: float = 1.2) -> Trouble:
    """Now and then a long thought."""
    last = time.monotonic()

    def think() -> None:
        nonlocal last
        if time.monotonic() - last > every_s:
            last = time.monotonic()
            digest(ms / 1e3)  # at: spikes

    return think


def digest(seconds: float) -> int:
    until, found = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:  # at: spikes
        found += sum(number * number for number in range(200))  # at: spikes
    return found


def nap(ms: float) -> Trouble:
    return lambda: time.sleep(ms / 1e3)  # at: nap


def ask_a_peer(ms: float) -> Trouble:
    """Asks a service for something in every step, and waits for the answer."""
    link = socket.create_connection(("127.0.0.1", int(os.environ["PEER_PORT"])))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    question = f"{ms}\n".encode()

    def ask() -> bytes:
        link.sendall(question)  # at: ask-a-peer
        return link.recv(64)  # at: ask-a-peer

    return ask


def evaluation(batches: float, every: int = 60) -> Trouble:
    """Healthy: the card is busy with it."""
    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    turn = 0

    def evaluate() -> None:
        nonlocal turn
        turn += 1
        if turn % every == 0:
            with torch.no_grad():
                for _ in range(int(batches)):
                    (left @ left).sum().item()

    return evaluate


TROUBLES: dict[str, Callable[[float], Trouble]] = {
    "decode": decode,
    "pageable": pageable,
    "fetch-activations": fetch_activations,
    "many-copies": many_copies,
    "items": items,
    "synchronise": synchronise,
    "tiny": tiny,
    "empty-cache": empty_cache,
    "leak": leak,
    "out-of-memory": out_of_memory,
    "recapture": recapture,
    "collect": collect,
    "hold-the-lock": hold_the_lock,
    "locked": locked,
    "notes": notes,
    "read-cold": read_cold,
    "checkpoints": checkpoints,
    "spikes": spikes,
    "nap": nap,
    "ask-a-peer": ask_a_peer,
    "evaluation": evaluation,
}
