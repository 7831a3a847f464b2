"""A small training job that never ran, as the windows capture would have made of it.

Deterministic by seed. Its numbers agree with each other as real ones do: every
thread's buckets sum to the window, a call's split sums to its duration, counts
and histograms hold every call while only some have a record. After a healthy
start another program takes the cores the feeding thread needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingero.model import histogram, layout
from ingero.model.layout import Bucket, CallFlag, HeaderFlag, RecordType, WakerKind, Why
from ingero.model.operations import Operation
from ingero.model.window import (
    BUCKETS,
    CULPRIT,
    OPERATION,
    THREAD_TIME,
    WAKER,
    Container,
    Process,
    Records,
    SystemSample,
    Window,
)

SECOND, MS, US = 1_000_000_000, 1_000_000, 1_000
TRAINER, WORKERS, NOISE = 4821, (4830, 4831), (5190, 5191)
CGROUP = 7316
CORES = 8

LAUNCH = Operation(1, "cuLaunchKernel", "driver", "launch")
COPY = Operation(2, "cudaMemcpyAsync", "runtime", "copy", kind_arg=3, bytes_known=True)
SYNC = Operation(3, "cudaStreamSynchronize", "runtime", "sync")
ALLOC = Operation(4, "cudaMalloc", "runtime", "alloc", bytes_known=True)
GRAPH = Operation(5, "cudaGraphLaunch", "graph", "graph")
REDUCE = Operation(6, "ncclAllReduce", "nccl", "collective", bytes_known=True, dtype_arg=3, reduce_arg=4)
OPERATIONS = (LAUNCH, COPY, SYNC, ALLOC, GRAPH, REDUCE)


@dataclass(frozen=True)
class Phase:
    """Some seconds that are alike."""

    name: str
    seconds: int
    steps: int  # a second
    allocations: int  # a second
    lost_ns: int  # run-queue time a step
    cpu_share: float


PHASES = (
    Phase("warming up", 2, 12, 40, 0, 0.38),
    Phase("healthy", 6, 20, 1, 0, 0.44),
    Phase("contention", 8, 9, 1, 55 * MS, 0.97),
    Phase("recovered", 4, 20, 1, 0, 0.45),
)


@dataclass(frozen=True)
class Calls:
    """Every call of one operation within a window."""

    operation: Operation
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    split_ns: NDArray[np.int64]  # (calls, BUCKETS)
    bytes: int = 0


def windows(seed: int, start_ns: int, boot_ns: int = 0) -> Iterator[tuple[Phase, Window]]:
    """One window a second from `start_ns` (monotonic); `boot_ns` is when the processes started."""
    random = np.random.default_rng(seed)
    collectives = 0
    for phase in PHASES:
        for _ in range(phase.seconds):
            window = _window(random, phase, start_ns, collectives)
            window.processes, window.containers = _processes(boot_ns), [_container()]
            collectives += phase.steps
            yield phase, window
            start_ns += SECOND


def _window(random: np.random.Generator, phase: Phase, start_ns: int, collectives: int) -> Window:
    calls = _calls(random, phase, start_ns)
    waits = _waits(random, phase, start_ns)
    trainer = _trainer_time(calls, waits)
    records = _records(random, calls, collectives)
    threads = _threads(random, phase, trainer, len(waits))
    threads["window_ns"] = start_ns
    hits = sum(len(each.start_ns) for each in calls)
    return Window(
        start_ns,
        start_ns + SECOND,
        calls=records,
        waits=waits,
        operations=_operations(calls, records),
        threads=threads,
        culprits=_culprits(random, waits),
        wakers=_wakers(waits),
        system=_system(random, phase),
        hits=hits,
        agent_cpu_ns=int(random.normal(9 * MS, MS)),
    )


def _lasting(random: np.random.Generator, count: int, median_ns: float, spread: float) -> NDArray[np.int64]:
    return np.maximum(200, random.lognormal(np.log(median_ns), spread, count)).astype(np.int64)


def _calls(random: np.random.Generator, phase: Phase, start_ns: int) -> list[Calls]:
    steps = start_ns + (np.arange(phase.steps) * SECOND) // phase.steps
    per_step = 160

    def at(offset_ns: int, repeats: int = 1, apart_ns: int = 0) -> NDArray[np.int64]:
        return (steps[:, None] + offset_ns + np.arange(repeats) * apart_ns).reshape(-1)

    def plain(
        operation: Operation, start: NDArray[np.int64], took: NDArray[np.int64], size: int = 0
    ) -> Calls:
        split = np.zeros((len(start), BUCKETS), np.int64)
        split[:, Bucket.CUDA_CPU] = took
        return Calls(operation, start, took, split, size)

    count = phase.steps
    allocations = start_ns + np.sort(random.integers(0, SECOND - 20 * MS, phase.allocations))
    return [
        plain(COPY, at(3 * MS, 2, 400 * US), _lasting(random, 2 * count, 48 * US, 0.4), 8 << 20),
        plain(LAUNCH, at(4 * MS, per_step, 60 * US), _lasting(random, per_step * count, 5.2 * US, 0.45)),
        plain(GRAPH, at(15 * MS), _lasting(random, count, 38 * US, 0.3)),
        plain(REDUCE, at(16 * MS), _lasting(random, count, 22 * US, 0.3), 32 << 20),
        plain(ALLOC, allocations, _lasting(random, phase.allocations, 125 * US, 1.1), 2 << 20),
        _syncs(random, phase, at(17 * MS)),
    ]


def _syncs(random: np.random.Generator, phase: Phase, start: NDArray[np.int64]) -> Calls:
    """Waits for the GPU; under contention the thread also waits to run again inside them."""
    split = np.zeros((len(start), BUCKETS), np.int64)
    split[:, Bucket.GPU_WAIT] = _lasting(random, len(start), 19 * MS, 0.08)
    split[:, Bucket.RUNQUEUE] = phase.lost_ns * random.uniform(0.25, 0.45, len(start))
    return Calls(SYNC, start, split.sum(axis=1), split)


def _waits(random: np.random.Generator, phase: Phase, start_ns: int) -> Records:
    """Long off-CPU intervals of the main thread: batches it waits for, and cores it lost."""
    steps = start_ns + (np.arange(phase.steps) * SECOND) // phase.steps
    batches = _header(np.zeros(phase.steps, layout.WAIT), RecordType.REC_WAIT, steps, TRAINER)
    batches["duration_ns"] = _lasting(random, phase.steps, 1.8 * MS, 0.12)
    batches["bucket"], batches["waker_kind"], batches["syscall"] = Bucket.PEER_WAIT, WakerKind.WAKER_TASK, 7
    worker = random.choice(WORKERS, phase.steps)
    batches["waker_pid"] = batches["waker_tid"] = worker
    batches["waker"] = b"pt_data_worker"
    if not phase.lost_ns:
        return batches
    lost = _header(np.zeros(3 * phase.steps, layout.WAIT), RecordType.REC_WAIT, np.repeat(steps, 3), TRAINER)
    lost["h"]["start_ns"] += np.tile(np.array([20, 45, 70], np.uint64) * np.uint64(MS), phase.steps)
    lost["duration_ns"] = phase.lost_ns / 3 * random.uniform(0.7, 1.1, len(lost))
    lost["runqueue_ns"], lost["bucket"], lost["syscall"] = lost["duration_ns"], Bucket.RUNQUEUE, -1
    lost["op"][::3] = SYNC.number
    joined = np.concatenate([batches, lost])
    return joined[np.argsort(joined["h"]["start_ns"], kind="stable")]


def _header(records: Records, kind: RecordType, start_ns: NDArray[np.integer], pid: int) -> Records:
    header = records["h"]
    header["type"], header["flags"], header["cpu"] = kind, HeaderFlag.H_FEEDER, 2
    header["pid"] = header["tid"] = pid
    header["start_ns"], header["cgroup_id"], header["comm"] = start_ns, CGROUP, b"python3"
    return records


def _records(random: np.random.Generator, calls: list[Calls], collectives: int) -> Records:
    """The calls that deserve a record: all rare ones, and one launch in forty for the others."""
    chosen = [_recorded(each, 40 if each.operation is LAUNCH else 1) for each in calls]
    reduces = next(part for part in chosen if len(part) and part["op"][0] == REDUCE.number)
    reduces["comm_hash"], reduces["nranks"] = 0x5EED, 1
    reduces["seq"] = collectives + np.arange(len(reduces))
    reduces["args"][:, 3], reduces["args"][:, 4] = 7, 0  # float32, sum
    joined = np.concatenate(chosen)
    joined["stream"] = 0x7F0000001000 + 0x100 * random.integers(0, 2, len(joined)).astype(np.uint64)
    return joined[np.argsort(joined["h"]["start_ns"], kind="stable")]


def _recorded(calls: Calls, every: int) -> Records:
    operation = calls.operation
    records = np.zeros(len(calls.start_ns[::every]), layout.CALL)
    _header(records, RecordType.REC_CALL, calls.start_ns[::every], TRAINER)
    records["op"], records["duration_ns"] = operation.number, calls.duration_ns[::every]
    records["split"], records["weight"] = calls.split_ns[::every], every
    records["why"] = Why.WHY_SAMPLE if every > 1 else Why.WHY_RARE
    records["flags"], records["bytes"] = _call_flags(calls), calls.bytes
    if operation is COPY:
        records["args"][:, 2], records["args"][:, 3] = calls.bytes, 1  # host to device
    return records


def _call_flags(calls: Calls) -> CallFlag:
    flags = CallFlag.CALL_NO_OUT
    if calls.operation is LAUNCH:
        flags |= CallFlag.CALL_FROM_RUNTIME
    if calls.operation is REDUCE:
        flags |= CallFlag.CALL_COMM_KNOWN
    return flags if calls.bytes else flags | CallFlag.CALL_NO_BYTES


def _operations(calls: list[Calls], records: Records) -> Records:
    rows = np.zeros(len(calls), OPERATION)
    for row, each in zip(rows, calls, strict=True):
        took = each.duration_ns
        row["pid"], row["op"], row["count"], row["sum_ns"] = (
            TRAINER,
            each.operation.number,
            len(took),
            took.sum(),
        )
        row["caller"] = 1 if each.operation is LAUNCH else 0
        row["min_ns"], row["max_ns"] = (took.min(), took.max()) if len(took) else (0, 0)
        row["bytes"] = each.bytes * len(took)
        row["recorded"] = np.count_nonzero(records["op"] == each.operation.number)
        row["split"] = each.split_ns.sum(axis=0)
        row["slots"] = np.bincount(histogram.slot_of(took), minlength=histogram.SLOTS)
    return rows[rows["count"] > 0]


def _trainer_time(calls: list[Calls], waits: Records) -> NDArray[np.int64]:
    """The main thread's second: inside calls, waiting, and the rest in Python."""
    ns: NDArray[np.int64] = np.concatenate([each.split_ns for each in calls]).sum(axis=0)
    for bucket in np.unique(waits["bucket"]):
        total = int(waits["duration_ns"][waits["bucket"] == bucket].sum())
        ns[bucket] = max(int(ns[bucket]), total)
    ns[Bucket.HOST_CPU] = SECOND - ns.sum()
    return ns


def _threads(random: np.random.Generator, phase: Phase, trainer: NDArray[np.int64], switches: int) -> Records:
    rows = np.zeros(1 + len(WORKERS), THREAD_TIME)
    rows["pid"] = rows["tid"] = (TRAINER, *WORKERS)
    rows["comm"] = (b"python3", *(b"pt_data_worker",) * len(WORKERS))
    rows["feeder"][0], rows["ns"][0] = True, trainer
    rows["voluntary_switches"][0] = phase.steps * 3
    rows["involuntary_switches"][0] = switches * 4 if phase.lost_ns else random.integers(0, 4)
    for row in rows[1:]:
        row["ns"][Bucket.DISK_WAIT] = random.integers(40 * MS, 80 * MS)
        row["ns"][Bucket.RUNQUEUE] = random.integers(180 * MS, 260 * MS) if phase.lost_ns else 2 * MS
        row["ns"][Bucket.PEER_WAIT] = random.integers(200 * MS, 300 * MS)
        row["ns"][Bucket.HOST_CPU] = SECOND - int(row["ns"].sum())
        row["voluntary_switches"] = phase.steps * 2
    return rows


def _culprits(random: np.random.Generator, waits: Records) -> Records:
    """Who ran on the core meanwhile."""
    total = int(waits["duration_ns"][waits["bucket"] == Bucket.RUNQUEUE].sum())
    if not total:
        return np.zeros(0, CULPRIT)
    rows = np.zeros(len(NOISE), CULPRIT)
    first = int(total * random.uniform(0.5, 0.7))
    rows["victim_pid"] = rows["victim_tid"] = TRAINER
    rows["pid"], rows["bucket"], rows["comm"] = NOISE, Bucket.RUNQUEUE, b"stress-ng-cpu"
    rows["ns"], rows["count"] = (first, total - first), (len(waits), len(waits) // 2)
    return rows


def _wakers(waits: Records) -> Records:
    rows = np.zeros(len(WORKERS), WAKER)
    rows["pid"] = rows["tid"] = TRAINER
    rows["waker_pid"] = rows["waker_tid"] = WORKERS
    rows["kind"], rows["bucket"], rows["comm"] = WakerKind.WAKER_TASK, Bucket.PEER_WAIT, b"pt_data_worker"
    for row in rows:
        mine = waits["duration_ns"][waits["waker_pid"] == row["waker_pid"]]
        row["ns"], row["count"] = mine.sum(), len(mine)
    return rows[rows["count"] > 0]


def _system(random: np.random.Generator, phase: Phase) -> SystemSample:
    busy = float(np.clip(random.normal(phase.cpu_share, 0.01), 0, 1))
    pressure = 0.62 if phase.lost_ns else 0.02
    return SystemSample(busy, 0.58, 27 << 30, busy * CORES * 1.4, CORES, 0, psi_cpu_some=pressure)


def _processes(boot_ns: int) -> list[Process]:
    trainer = Process(TRAINER, boot_ns, "python3", "python3 train.py --epochs 3", CGROUP, 1000, 1)
    workers = [
        Process(pid, boot_ns + SECOND, "pt_data_worker", "python3 train.py --epochs 3", CGROUP, 1000, TRAINER)
        for pid in WORKERS
    ]
    return [trainer, *workers]


def _container() -> Container:
    identity = "3f2a9c41d7be" + "0" * 52
    path = f"/kubepods.slice/pod7d1c/cri-containerd-{identity}.scope"
    return Container(CGROUP, path, identity, "containerd", "nightly-retraining-0", "ml", None)
