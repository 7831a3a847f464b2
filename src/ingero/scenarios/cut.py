"""What a made-up thread did, cut into the windows capture would have made of it.

Time is cut where the second ends; a call, a wait's record and a late return belong to
the second in which they end, as when probes report them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingero.model import histogram, layout
from ingero.model.layout import Bucket, CallFlag, HeaderFlag, RecordType, SampleFlag, WakerKind, Why
from ingero.model.operations import Operation
from ingero.model.sites import SAMPLE_NS, SAMPLES_PER_SECOND
from ingero.model.window import BUCKETS, CULPRIT, OPERATION, SAMPLE, THREAD_TIME, WAKER, Records
from ingero.scenarios.code import stack_hash
from ingero.scenarios.job import FROM_RUNTIME, LAUNCH, REDUCE
from ingero.scenarios.scenario import SECOND
from ingero.scenarios.thread import Ints, ScenarioCalls, Thread, Wait

SAMPLED = 40  # one record for so many launches
ON_CORE = (Bucket.HOST_CPU, Bucket.CUDA_CPU, Bucket.GPU_WAIT)
POLL = 7  # system call a worker's batch is waited for in


class CutThread:
    """One thread's seconds; `names` are the names of all processes it has to do with."""

    def __init__(self, thread: Thread, end_ns: int, comm: str, cgroup: int, names: dict[int, str]) -> None:
        self.pid = thread.pid
        self._comm, self._cgroup, self._names = comm.encode(), cgroup, names
        self._origin = thread.start_ns
        self._spent = _at_seconds(thread.spent(), thread.start_ns, end_ns)
        self._calls = [_joined(calls) for calls in thread.calls.values()]
        self._waits = thread.waits
        self._late = thread.late
        self._collectives = 0

    def lives_at(self, start_ns: int) -> bool:
        return bool(((self._spent["at"] >= start_ns) & (self._spent["at"] < start_ns + SECOND)).any())

    def time(self, start_ns: int) -> Records:
        rows = np.zeros(1, THREAD_TIME)
        now = self._within(start_ns)
        rows["window_ns"], rows["pid"], rows["tid"], rows["comm"] = start_ns, self.pid, self.pid, self._comm
        rows["feeder"], rows["ns"][0] = True, _by_bucket(now)
        rows["gap"][0] = _by_bucket(now[now["gap"]])
        rows["late_ns"] = sum(ns for at, ns in self._late if start_ns <= at < start_ns + SECOND)
        blocked = [wait for wait in self._ended(start_ns) if wait.blocked_ns]
        rows["voluntary_switches"] = len(blocked)
        rows["involuntary_switches"] = np.count_nonzero(now["bucket"] == Bucket.RUNQUEUE)
        return rows

    def culprits(self, start_ns: int) -> Records:
        """Who ran on the core meanwhile."""
        return self._by_whom(start_ns, Bucket.RUNQUEUE, CULPRIT, "victim_pid", "victim_tid", "pid")

    def wakers(self, start_ns: int) -> Records:
        rows = self._by_whom(start_ns, Bucket.PEER_WAIT, WAKER, "pid", "tid", "waker_pid")
        rows["waker_tid"], rows["kind"] = rows["waker_pid"], WakerKind.WAKER_TASK
        return rows

    def _by_whom(
        self, start_ns: int, bucket: Bucket, dtype: np.dtype[np.void], pid: str, tid: str, other: str
    ) -> Records:
        now = self._within(start_ns)
        now = now[(now["bucket"] == bucket) & (now["who"] > 0)]
        others, counts = np.unique(now["who"], return_counts=True)
        rows = np.zeros(len(others), dtype)
        rows[pid] = rows[tid] = self.pid
        rows[other], rows["bucket"], rows["count"] = others, bucket, counts
        for row in rows:
            row["ns"] = now["ns"][now["who"] == row[other]].sum()
            row["comm"] = self._names.get(int(row[other]), "").encode()
        return rows

    def waits(self, start_ns: int) -> Records:
        ended = self._ended(start_ns)
        rows = np.zeros(len(ended), layout.WAIT)
        for row, wait in zip(rows, ended, strict=True):
            row["duration_ns"], row["runqueue_ns"] = wait.blocked_ns + wait.runqueue_ns, wait.runqueue_ns
            row["bucket"], row["op"] = wait.bucket, wait.op
            row["syscall"] = POLL if wait.waker else -1
            row["waker_pid"] = row["waker_tid"] = wait.waker
            row["waker_kind"] = WakerKind.WAKER_TASK if wait.waker else 0
            row["waker"] = self._names.get(wait.waker, "").encode()
        self._head(rows, RecordType.REC_WAIT, np.array([wait.start_ns for wait in ended], np.int64))
        return rows

    def wait_stacks(self, start_ns: int) -> Ints:
        return np.array([stack_hash(wait.place) for wait in self._ended(start_ns)], np.int64)

    def samples(self, start_ns: int) -> Records:
        """Where the clock saw the thread on its core; it spins while it waits for the GPU."""
        now = self._within(start_ns)
        ticks = start_ns + (np.arange(SAMPLES_PER_SECOND) * SAMPLE_NS).astype(np.int64)
        at = np.searchsorted(now["at"], ticks, side="right") - 1
        seen = now[at[at >= 0]]
        seen = seen[np.isin(seen["bucket"], ON_CORE)]
        keys, counts = np.unique(seen[["bucket", "place", "op"]], return_counts=True)
        rows = np.zeros(len(keys), SAMPLE)
        rows["pid"] = rows["tid"] = self.pid
        rows["bucket"], rows["op"], rows["count"] = keys["bucket"], keys["op"], counts
        rows["stack_hash"] = [stack_hash(place) for place in keys["place"].tolist()]
        rows["flags"] = np.where(keys["bucket"] == Bucket.HOST_CPU, SampleFlag.SAMPLE_GIL, 0)
        return rows

    def operations(self, start_ns: int) -> Records:
        rows = np.zeros(len(self._calls), OPERATION)
        for row, (operation, calls) in zip(rows, self._calls, strict=True):
            now = _ending(calls, start_ns)
            took = now["ns"]
            row["pid"], row["op"], row["count"], row["sum_ns"] = (
                self.pid, operation.number, len(took), took.sum(),
            )  # fmt: skip
            row["caller"] = 1 if operation in FROM_RUNTIME else 0
            row["min_ns"], row["max_ns"] = (took.min(), took.max()) if len(took) else (0, 0)
            row["bytes"], row["split"] = now["bytes"].sum(), now["split"].sum(axis=0)
            row["recorded"] = len(took[:: _every(operation)])
            row["slots"] = np.bincount(histogram.slot_of(took), minlength=histogram.SLOTS)
        return rows[rows["count"] > 0]

    def records(self, start_ns: int) -> tuple[Records, Ints]:
        """The calls that deserve one: all but the hottest, and some of those for the others.

        And the stack of each.
        """
        ending = [(operation, _ending(calls, start_ns)) for operation, calls in self._calls]
        joined = np.concatenate([self._recorded(*each) for each in ending])
        places = np.concatenate([calls["place"][:: _every(operation)] for operation, calls in ending])
        order = np.argsort(joined["h"]["start_ns"], kind="stable")
        hashes = np.array([stack_hash(place) for place in places[order].tolist()], np.int64)
        return joined[order], hashes

    def _recorded(self, operation: Operation, calls: NDArray[np.void]) -> Records:
        every = _every(operation)
        chosen = calls[::every]
        rows = np.zeros(len(chosen), layout.CALL)
        self._head(rows, RecordType.REC_CALL, chosen["at"])
        rows["op"], rows["duration_ns"], rows["bytes"] = operation.number, chosen["ns"], chosen["bytes"]
        rows["split"], rows["stream"] = chosen["split"], 0x7F0000001000
        rows["weight"] = every
        if len(rows):  # the last one stands for what is left
            rows["weight"][-1] = len(calls) - every * (len(rows) - 1)
        rows["why"] = Why.WHY_SAMPLE if every > 1 else Why.WHY_RARE
        rows["flags"] = _flags(operation)
        if operation is REDUCE:
            self._number(rows)
        return rows

    def _number(self, reduces: Records) -> None:
        reduces["comm_hash"], reduces["nranks"] = 0x5EED, 1
        reduces["seq"] = self._collectives + np.arange(len(reduces))
        reduces["args"][:, 3], reduces["args"][:, 4] = 7, 0  # float32, sum
        self._collectives += len(reduces)

    def _head(self, rows: Records, kind: RecordType, start_ns: Ints) -> None:
        header = rows["h"]
        header["type"], header["flags"], header["cpu"] = kind, HeaderFlag.H_FEEDER, 2
        header["pid"] = header["tid"] = self.pid
        header["start_ns"], header["cgroup_id"], header["comm"] = start_ns, self._cgroup, self._comm

    def _within(self, start_ns: int) -> NDArray[np.void]:
        first, last = np.searchsorted(self._spent["at"], [start_ns, start_ns + SECOND])
        return self._spent[first:last]

    def _ended(self, start_ns: int) -> list[Wait]:
        return [
            wait
            for wait in self._waits
            if start_ns <= wait.start_ns + wait.blocked_ns + wait.runqueue_ns < start_ns + SECOND
        ]


def _at_seconds(spent: NDArray[np.void], start_ns: int, end_ns: int) -> NDArray[np.void]:
    """Cut so that no piece lies in two seconds; what comes after the end is dropped."""
    pieces = []
    while len(spent):
        room = SECOND - (spent["at"] - start_ns) % SECOND
        rest = spent[spent["ns"] > room]
        short = spent.copy()
        short["ns"] = np.minimum(spent["ns"], room)
        pieces.append(short)
        rest["at"] += room[spent["ns"] > room]
        rest["ns"] -= room[spent["ns"] > room]
        spent = rest
    joined = np.concatenate(pieces)
    joined = joined[joined["at"] < end_ns]
    return joined[np.argsort(joined["at"], kind="stable")]


def _by_bucket(spent: NDArray[np.void]) -> Ints:
    sums = np.zeros(BUCKETS, np.int64)
    np.add.at(sums, spent["bucket"], spent["ns"])
    return sums


def _joined(calls: ScenarioCalls) -> tuple[Operation, NDArray[np.void]]:
    start = np.concatenate(calls.start_ns)
    rows = np.zeros(
        len(start),
        [
            ("at", "<i8"),
            ("ns", "<i8"),
            ("bytes", "<i8"),
            ("place", "<i8"),
            ("split", "<i8", (BUCKETS,)),
        ],
    )
    rows["at"], rows["ns"] = start, np.concatenate(calls.duration_ns)
    rows["split"] = np.concatenate(calls.split_ns)
    lengths = [len(part) for part in calls.start_ns]
    rows["bytes"], rows["place"] = np.repeat(calls.bytes, lengths), np.repeat(calls.places, lengths)
    return calls.operation, rows


def _ending(calls: NDArray[np.void], start_ns: int) -> NDArray[np.void]:
    ends = calls["at"] + calls["ns"]
    chosen: NDArray[np.void] = calls[(ends > start_ns) & (ends <= start_ns + SECOND)]
    return chosen


def _every(operation: Operation) -> int:
    return SAMPLED if operation is LAUNCH else 1


def _flags(operation: Operation) -> CallFlag:
    flags = CallFlag.CALL_NO_OUT
    if operation in FROM_RUNTIME:
        flags |= CallFlag.CALL_FROM_RUNTIME
    if operation is REDUCE:
        flags |= CallFlag.CALL_COMM_KNOWN
    return flags if operation.bytes_known else flags | CallFlag.CALL_NO_BYTES
