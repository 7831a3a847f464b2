"""How fast the ring is emptied: a million records a second from the other core.

The producer is a BPF program that only fills records, run by a second process in
small bursts, so that records come evenly and not as one flood. The reader is the
agent's, on the agent's timer.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.figures import Figure, Section, at_most
from benchmarks.machine import pinned
from ingero.agent.run import POLL_MS
from ingero.attach.kernel import DEFAULT_RING_BYTES, KernelSide, Settings
from ingero.capture.counters import LossBook
from ingero.capture.ring import RingReader
from ingero.model import layout
from ingero.model.layout import RecordType
from ingero.native import _shim

TITLE = "Draining the ring"
RATE = 1_000_000
BURST = 1000
LATE_S = 0.005  # what is caught up with
BATCH, BATCHES = 10_000, 60  # what ten milliseconds bring
SECONDS, QUICK_SECONDS = 6, 2
OFF = frozenset({"empty_session", "empty_enter", "empty_return"})


@dataclass(frozen=True, slots=True)
class Drained:
    """One run at a set rate."""

    produced: int
    drained: int
    lost: int
    took_s: float
    cpu_s: float
    longest_gap_s: float  # between two drains

    @property
    def rate(self) -> float:
        return self.drained / self.took_s

    @property
    def ns_per_record(self) -> float:
        return self.cpu_s / max(self.drained, 1) * 1e9


def _produce(program: int, seconds: float, rate: int) -> None:
    """In the second process: bursts on time. Held up itself, it does not make up for it by a flood."""
    bursts = int(rate * seconds / BURST)
    context = bytearray(np.array([BURST, 0], "<u4").tobytes())
    due = time.perf_counter()
    for _ in range(bursts):
        while (now := time.perf_counter()) < due:
            pass
        _shim.test_run(program, context)
        due = max(due, now - LATE_S) + BURST / rate


def _start_producer(program: int, seconds: float, rate: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with pinned(-1):
            _produce(program, seconds, rate)
        code = 0
    finally:
        os._exit(code)


def drain_at(rate: int, seconds: float) -> Drained:
    """Empty the ring every 10 ms while the producer runs, on another core where there is one."""
    kernel = KernelSide(Settings(ring_bytes=DEFAULT_RING_BYTES))
    try:
        program = kernel.load("bench", OFF).program_fd("produce")
        reader = RingReader(kernel.maps["ring"], DEFAULT_RING_BYTES)
        losses = LossBook(kernel.maps["losses"], kernel.cpus)
        with pinned(0):
            child = _start_producer(program, seconds, rate)
            begin, cpu = time.perf_counter(), time.process_time()
            status, drained_at, longest = None, begin, 0.0
            while status is None:
                time.sleep(POLL_MS / 1000)
                ended, code = os.waitpid(child, os.WNOHANG)
                _hold(reader)
                longest, drained_at = max(longest, time.perf_counter() - drained_at), time.perf_counter()
                status = code if ended else None
            took, cpu = time.perf_counter() - begin, time.process_time() - cpu
        if status:
            raise RuntimeError("the producer failed")
        produced = int(rate * seconds / BURST) * BURST
        return Drained(produced, reader.drained, losses.read().get("ring_call", 0), took, cpu, longest)
    finally:
        kernel.close()


def move_ns() -> tuple[float, float]:
    """Nanoseconds per record of a full ring: out of the ring alone, and held as arrays as well."""
    kernel = KernelSide(Settings(ring_bytes=DEFAULT_RING_BYTES))
    try:
        program = kernel.load("bench", OFF).program_fd("produce")
        context = bytearray(np.array([BATCH, 0], "<u4").tobytes())
        reader = RingReader(kernel.maps["ring"], DEFAULT_RING_BYTES)
        ring = _shim.Ring(kernel.maps["ring"], DEFAULT_RING_BYTES)
        room = np.zeros(BATCH, layout.CALL)
        targets = {int(RecordType.REC_CALL): (room.view(np.uint8), layout.CALL.itemsize)}
        alone: list[float] = []
        held: list[float] = []
        for _ in range(BATCHES):
            for times, work in ((alone, lambda: ring.drain(targets)), (held, lambda: _hold(reader))):
                _shim.test_run(program, context)
                begin = time.perf_counter_ns()
                work()
                times.append((time.perf_counter_ns() - begin) / BATCH)
        return float(np.median(alone)), float(np.median(held))
    finally:
        kernel.close()


def _hold(reader: RingReader) -> None:
    reader.drain()
    reader.take(RecordType.REC_CALL)


def _figures(run: Drained) -> list[Figure]:
    wanted = run.produced
    return [
        Figure(
            "records drained per second",
            f"{run.rate:,.0f}",
            f"≥ {RATE:,} (within 2 %)",
            run.rate >= RATE * 0.98,
        ),
        at_most(f"records dropped of {wanted:,}", run.lost, 0, f"{run.lost:,}", ""),
        Figure("drained and dropped add up to produced", str(run.drained + run.lost == wanted)),
        Figure("longest time between two drains", f"{run.longest_gap_s * 1000:.0f} ms"),
        Figure("reader's CPU", f"{run.cpu_s / run.took_s * 100:.1f} % of a core"),
        Figure("ns per record", f"{run.ns_per_record:.1f}"),
    ]


METHOD = """\
A BPF program writes call records of {size} bytes, {burst:,} at a time and {rate:,} a second, from a
process on the last core; the agent's reader empties a ring of {ring} MiB every {poll} ms on the first for
{seconds} s and lets go of the arrays at once. CPU time is the reader's own. A second run at a tenth of
the rate separates what a record costs from what the timer costs; the last line times {batch:,} records
that already wait in the ring."""

RESOLVES = """\
The producer catches up with at most {late:.0f} ms when it was held up, so that a loss is the reader's;
the ring holds {held:.0f} ms at this rate. Nothing is stored: rows of the database cost far more (see
there), which is why most calls are only counted."""


def measure(quick: bool) -> Section:
    seconds = QUICK_SECONDS if quick else SECONDS
    run = drain_at(RATE, seconds)
    slow = drain_at(RATE // 10, 2)
    share = slow.cpu_s / slow.took_s * 100
    alone, held = move_ns()
    size, ring = layout.CALL.itemsize, DEFAULT_RING_BYTES
    return Section(
        TITLE,
        (
            *_figures(run),
            Figure(f"reader's CPU at {RATE // 10:,} a second", f"{share:.1f} % of a core"),
            Figure("ns per record: copied out of the ring; held in arrays too", f"{alone:.0f}; {held:.0f}"),
        ),
        METHOD.format(
            size=size, burst=BURST, batch=BATCH, rate=RATE, ring=ring >> 20, poll=POLL_MS, seconds=seconds
        ),
        RESOLVES.format(late=LATE_S * 1000, held=ring / (size + 8) / RATE * 1000),
    )
