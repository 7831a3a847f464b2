"""Everything the detectors look at: the processes that feed a GPU, and where their time went."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.gpu_use import Cards
from ingero.correlate.ledger import Ledgers
from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.pace import NOT_SAID, Pace, last_step_ns, pace_of
from ingero.correlate.ranks import align
from ingero.correlate.steps import LEAST_NS as SPIKE_NS
from ingero.correlate.steps import (
    Loop,
    find_loop,
    idle_ns,
    no_spikes,
    spikes_in,
    surely_idle_ns,
    waited_ns,
    waits_in,
)
from ingero.correlate.tables import Family, Tables, capture_ns
from ingero.model.facts import Facts, Marks
from ingero.model.layout import Bucket
from ingero.model.sites import SAMPLE_NS
from ingero.model.window import Records

LAYERS = frozenset({"runtime", "driver", "graph", "nccl"})
HOT_KINDS = frozenset({"launch", "copy", "set", "event", "poll"})
COLD_KINDS = ("context", "module")
# Of those kinds: what takes time once. Others of them are questions that every step may ask.
LOADING = re.compile(r"Create|Retain|Init|Load|Link|Reset")
# What a process does with its context when it ends.
UNDOING = re.compile(r"LibraryUnload|ModuleUnload|CtxDestroy|PrimaryCtxRelease|DeviceReset")
STEP_KINDS = frozenset({"launch", "graph", "sync", "collective"})
COLD_GAP = 2  # slices from one with any to the next: more, and the start is over
READ_BYTES = 64 << 10  # a copy of at most this much takes microseconds on any bus
READ_WAITS = 0.5  # of its time: then what it took was the GPU's way to the result
RARE_WAITS = 0.1  # per iteration
OFTEN_IN_A_STEP = 1.5  # calls: fewer are one, miscounted
COLD_SHARE = 0.03  # of a slice spent creating contexts and loading code
COLD_REACH_NS = 60_000_000_000  # later than this after the first call it is no start-up any more
# Reasons of loss that leave holes in what a detector concludes from.
BLINDING = ("ring_wait", "ring_thread", "histogram_full", "thread_state", "store_backlog", "culprit_full")


@dataclass(slots=True)
class Spent:
    """What one process did with one kind of call in one slice."""

    count: int = 0
    ns: int = 0
    bytes: int = 0
    errors: int = 0
    gpu_wait_ns: int = 0
    cpu_ns: int = 0
    error: int = 0  # how far count may be off

    @property
    def calls(self) -> str:
        """For people: marked where some were not seen."""
        return f"~{self.count:,}" if self.error else f"{self.count:,}"

    def add(self, row: np.void) -> None:
        self.count += int(row["count"])
        self.error += int(row["error"])
        self.ns += int(row["sum_ns"])
        self.bytes += int(row["bytes"])
        self.errors += int(row["errors"])
        self.gpu_wait_ns += int(row["split"][Bucket.GPU_WAIT])
        self.cpu_ns += int(row["split"][Bucket.CUDA_CPU])


def together(parts: Iterable[Spent]) -> Spent:
    total = Spent()
    for one in parts:
        total.count += one.count
        total.error += one.error
        total.ns += one.ns
        total.bytes += one.bytes
        total.errors += one.errors
        total.gpu_wait_ns += one.gpu_wait_ns
        total.cpu_ns += one.cpu_ns
    return total


def is_reading(copies: np.void) -> bool:
    """Copies that read values back: so few bytes that their time is the wait for the GPU."""
    small = int(copies["bytes"]) <= READ_BYTES * int(copies["count"])
    return small and int(copies["split"][Bucket.GPU_WAIT]) > READ_WAITS * int(copies["sum_ns"])


@dataclass(slots=True)
class Job:
    """A process that feeds a GPU, seen from the thread that does most of it."""

    pid: int
    tid: int
    comm: str
    slices: list[SliceLedger]
    loop: Loop | None = None
    # by slice, by kind of call; "reading": the copies among them that read values back
    calls: dict[int, dict[str, Spent]] = field(default_factory=dict)
    capturing: dict[int, int] = field(default_factory=dict)  # by slice, ns of filling graphs
    spikes: NDArray[np.int64] = field(default_factory=no_spikes)  # start and excess of each
    spikes_idle_ns: int = 0  # of them: surely without work for the GPU, if every launch was seen
    spikes_waited_ns: int = 0  # of them: the GPU was waited for longer than usual
    spikes_wait: bool = False  # they are single waits of its thread, not iterations
    covered: float = 1.0  # part of the recording its sums cover
    pace: Pace | None = None

    @property
    def wall_ns(self) -> int:
        return sum(each.wall_ns for each in self.slices)

    @property
    def settled(self) -> list[SliceLedger]:
        """Without its start and its end: importing and tidying up are no trouble of the job."""
        return [each for each in self.slices if not each.ending and not each.starting]

    def spent(self, number: int, *kinds: str) -> Spent:
        calls = self.calls.get(number, {})
        return together(calls[kind] for kind in kinds if kind in calls)

    def waits(self, number: int) -> int:
        """How often the host waited for a result of the GPU.

        A value read back is a copy that waits; frameworks wait once more after it.
        """
        return max(self.spent(number, "sync").count, self.spent(number, "reading").count)

    def steps(self, number: int) -> int:
        return self.loop.counts.get(number, 0) if self.loop else 0

    def step_ns(self, numbers: list[int]) -> float | None:
        """Mean length of an iteration over these slices."""
        walls = {each.number: each.wall_ns for each in self.slices}
        steps = sum(self.steps(number) for number in numbers)
        return sum(walls.get(number, 0) for number in numbers) / steps if steps else None


class Timeline:
    """The jobs, and what is known about everybody else."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.arrivals = [*facts.arrivals, *align(facts.unmatched)]
        self.family = Family(facts.processes)
        self.tables = Tables(facts)
        self.cards = Cards(facts)
        self._ledgers = Ledgers(self.tables, self.family, facts.agent_pid)
        self._blind = self._blind_slices()
        self._driver_ops = {
            number
            for number, op in facts.ops.items()
            if op.name.startswith("cu") and not op.name.startswith("cuda")
        }
        self._outermost: dict[tuple[int, int], list[np.void]] = {}
        self.jobs = list(self._jobs())

    def lost(self, *buckets: str) -> Iterator[tuple[Job, SliceLedger, list[Lost]]]:
        """Slices in which time was lost to one of these."""
        for job in self.jobs:
            for each in job.settled:
                found = [lost for lost in each.lost if lost.bucket in buckets]
                if found:
                    yield job, each, found

    def _blind_slices(self) -> set[int]:
        blind: set[int] = set()
        for loss in self.facts.losses:
            if loss.reason in BLINDING:
                first, last = (
                    (at - self.facts.origin_ns) // self.facts.slice_ns for at in (loss.from_ns, loss.to_ns)
                )
                blind.update(range(int(first), int(last) + 1))
        return blind

    def _jobs(self) -> Iterator[Job]:
        threads = self.facts.threads
        for pid in np.unique(threads["pid"][threads["feeder"] > 0]).tolist():
            job = self._job(int(pid))
            if job is not None:
                yield job

    def _job(self, pid: int) -> Job | None:
        tid = self._driving_thread(pid)
        calling = self._calling(pid, tid)
        if not calling:
            return None
        threads = self.facts.threads
        rows = threads[(threads["tid"] == tid) & (threads["pid"] == pid) & (threads["slice"] >= calling[0])]
        rows = rows[np.argsort(rows["slice"], kind="stable")]
        slices = [self._ledgers.of(pid, row, self.outermost(int(row["slice"]), pid)) for row in rows]
        job = Job(pid, tid, self.facts.comm(pid), slices)
        if self.facts.partial:
            self._tell_silence(slices, calling)
            job.covered = min(1.0, job.wall_ns / max(self.facts.to_ns - self.facts.from_ns, 1))
        job.calls = {number: self._calls(number, pid) for number in calling}
        self._sample_collections(job)
        with_calls = [number for number in calling if (number, pid) in self.tables.operations]
        job.capturing = capture_ns(self.facts, self.tables, pid, with_calls)
        self._mark(job)
        ends_ns = self._ends_ns(job)
        for each in slices:
            each.ending = self.facts.at_ns(each.number + 1) > ends_ns
        settled = {each.number: each.wall_ns for each in slices if not each.cold and not each.ending}
        job.loop = find_loop(self.facts, self.tables, pid, settled)
        self._find_spikes(job)
        self._mark_rare(job)
        job.pace = self._pace(job, ends_ns)
        return job

    def _find_spikes(self, job: Job) -> None:
        if job.loop is None:
            return
        cold_ns = max((self.facts.at_ns(each.number + 1) for each in job.slices if each.cold), default=0)
        if job.loop.complete:
            marks = self.facts.marks(job.pid, job.loop.op)
            job.spikes = spikes_in(marks, cold_ns, self._lives_to(job.pid), lambda: self._launches(job.pid))
            # Only a call that waits for the GPU shows by its length whether there was work.
            if len(job.spikes) and self.facts.ops[job.loop.op].kind == "sync":
                job.spikes_idle_ns = idle_ns(job.spikes, marks, self._launches(job.pid)[:, 0])
                job.spikes_waited_ns = waited_ns(job.spikes, marks, self._launches(job.pid)[:, 0])
            return
        judged = [each for each in job.slices if not each.cold and not each.ending]
        usual = job.step_ns([each.number for each in judged])
        if usual is None:
            return
        waits = self.facts.stalls(job.tid, SPIKE_NS)
        job.spikes = waits_in(waits, usual, cold_ns, lambda: self._launches(job.pid))
        job.spikes_idle_ns, job.spikes_wait = surely_idle_ns(job.spikes, usual), bool(len(job.spikes))

    def _pace(self, job: Job, ends_ns: int) -> Pace | None:
        cold_ns = max((self.facts.at_ns(each.number + 1) for each in job.slices if each.cold), default=0)
        windows = self.facts.windows(job.pid, job.tid)
        names = {number: op.name for number, op in self.facts.ops.items() if op.layer in LAYERS}
        seconds = self.facts.seconds(job.pid)
        seconds = seconds[np.isin(seconds["op"], list(names))]
        step_op = job.loop.op if job.loop else None
        young = self._is_young(job.pid)
        questions = [number for number in names if self._kind_told(number) == "question"]
        said = self._said(job.pid)
        pace = pace_of(seconds, names, windows, cold_ns, ends_ns, step_op, questions, young, said)
        if pace is None or pace.op is None or job.loop is None:
            return pace
        return pace.in_steps(self._calls_per_step(job, pace.op))

    def _calls_per_step(self, job: Job, op: int) -> float:
        """Of the call that the pace was counted by: what marks a step may be known by an estimate only."""
        assert job.loop is not None
        rows = [
            row for number in job.loop.counts for row in self.tables.operations.get((number, job.pid), ())
        ]
        calls = sum(int(row["count"]) for row in rows if int(row["op"]) == op)
        steps = sum(job.loop.counts.values())
        return calls / steps if steps and calls >= OFTEN_IN_A_STEP * steps else 1.0

    def _said(self, pid: int) -> Marks:
        """Steps as the job says them, or the nearest process above it that does: a launcher, say."""
        told = (self.facts.said(each) for each in (pid, *self.family.ancestors(pid)))
        return next((marks for marks in told if len(marks)), NOT_SAID)

    def _is_young(self, pid: int) -> bool:
        """It may still be starting when it is first seen."""
        known = self.facts.processes.get(pid)
        return bool(known and known.start_ns and self.facts.from_ns - known.start_ns < COLD_REACH_NS)

    def is_settling(self, pid: int) -> bool:
        """Its first minute is not over: it may be loading, compiling and trying things out."""
        known = self.facts.processes.get(pid)
        return bool(known and known.start_ns and self.facts.to_ns - known.start_ns < COLD_REACH_NS)

    def _steady_ns(self, job: Job) -> int:
        """When a young process began to give the GPU work second after second.

        One that never did, in its first minute, still starts: a model is moved to the GPU, and then seconds
        go by until the first step.
        """
        starts = sorted(self.facts.windows(job.pid, job.tid))
        known = self.facts.processes.get(job.pid)
        if not starts or not self._is_young(job.pid) or known is None or known.start_ns is None:
            return 0
        working = [number for number, op in self.facts.ops.items() if op.kind in STEP_KINDS]
        seconds = self.facts.seconds(job.pid)
        active = np.isin(starts, seconds["start_ns"][np.isin(seconds["op"], working)])
        run = active[:-2] & active[1:-1] & active[2:]
        return starts[int(np.argmax(run))] if run.any() else known.start_ns + COLD_REACH_NS

    def _ends_ns(self, job: Job) -> int:
        """Up to when the job is judged: of one that ended, its last second of steps and all after it is
        tidying up. Of one that still runs, all there is."""
        known, seconds = self.facts.processes.get(job.pid), self.facts.seconds(job.pid)
        windows = self.facts.windows(job.pid, job.tid)
        last_ns = last_step_ns(seconds, windows)
        if last_ns is None:  # its steps were a small part of all that it did
            last_ns = self._last_work_ns(seconds)
        if last_ns is None:
            return self.facts.to_ns + self.facts.slice_ns
        undoing = [number for number, op in self.facts.ops.items() if UNDOING.search(op.name)]
        undone = seconds["start_ns"][np.isin(seconds["op"], undoing)]
        ended = known is not None and known.end_ns is not None and known.end_ns <= self.facts.to_ns
        if ended or (len(undone) and undone.max() >= last_ns):
            return last_ns
        return self.facts.to_ns + self.facts.slice_ns

    def _last_work_ns(self, seconds: Records) -> int | None:
        """When the last second began in which the GPU was given something."""
        working = [number for number, op in self.facts.ops.items() if op.kind in STEP_KINDS]
        given = seconds["start_ns"][np.isin(seconds["op"], working) & (seconds["count"] > 0)]
        return int(given.max()) if len(given) else None

    def _launches(self, pid: int) -> Marks:
        """Recorded ones."""
        return self.facts.marks(pid, self._launching(pid))

    def _sample_collections(self, job: Job) -> None:
        """A collector without a symbol to probe shows in the samples of the thread that feeds the GPU."""
        if not any(pid == job.pid and source == "gc" for pid, source, _ in self.facts.blind):
            return
        rows = self.facts.sites.collecting(job.pid, self.facts.from_ns, self.facts.to_ns)
        for start_ns, count in rows[rows["tid"] == job.tid][["start_ns", "count"]].tolist():
            number = int((start_ns - self.facts.origin_ns) // self.facts.slice_ns)
            if number in job.calls:
                spent = job.calls[number].setdefault("gc", Spent())
                spent.ns += int(count * SAMPLE_NS)

    def _lives_to(self, pid: int) -> int:
        known = self.facts.processes.get(pid)
        return min(known.end_ns if known and known.end_ns else self.facts.to_ns, self.facts.to_ns)

    def _calling(self, pid: int, tid: int) -> list[int]:
        """Slices with calls of the job."""
        ours = [number for number, op in self.facts.ops.items() if op.layer in LAYERS]
        rows = self.facts.operations
        found = np.unique(rows["slice"][(rows["pid"] == pid) & np.isin(rows["op"], ours)])
        if not len(found) and self.facts.partial:  # its calls were not among those stored
            threads = self.facts.threads
            found = np.unique(threads["slice"][threads["tid"] == tid])
        return [int(number) for number in found]

    @staticmethod
    def _tell_silence(slices: list[SliceLedger], calling: list[int]) -> None:
        """Where gaps were not recorded: between calls, slices without any are one."""
        for each in slices:
            silent = calling[0] < each.number < calling[-1] and each.number not in calling
            if silent and not each.ns["gpu_wait"]:
                each.gap = dict(each.ns)

    def _driving_thread(self, pid: int) -> int:
        """Of several feeding threads the one that waits for the GPU and gives it work."""
        threads = self.facts.threads
        mine = threads[(threads["pid"] == pid) & (threads["feeder"] > 0)]
        weight: dict[int, int] = {}
        for row in mine:
            ns = int(row["gap"].sum()) + int(row["ns"][Bucket.GPU_WAIT]) + int(row["ns"][Bucket.CUDA_CPU])
            weight[int(row["tid"])] = weight.get(int(row["tid"]), 0) + ns
        return max(weight, key=lambda tid: (weight[tid], -tid))

    def _calls(self, number: int, pid: int) -> dict[str, Spent]:
        found: dict[str, Spent] = {}
        for row in self.outermost(number, pid):
            kind = self._kind_told(int(row["op"]))
            for name in (kind, "reading") if kind == "copy" and is_reading(row) else (kind,):
                found.setdefault(name, Spent()).add(row)
        return found

    def _kind_told(self, op: int) -> str:
        kind = self.tables.op_kind(op)
        return "question" if kind in COLD_KINDS and not LOADING.search(self.facts.ops[op].name) else kind

    def outermost(self, number: int, pid: int) -> list[np.void]:
        """A call of the runtime that leads to the driver is counted once, where both are probed."""
        found = self._outermost.get((number, pid))
        if found is None:
            found = self._outermost[number, pid] = list(self._counted_once(number, pid))
        return found

    def _counted_once(self, number: int, pid: int) -> Iterator[np.void]:
        """Hot kinds are probed at the driver whoever calls, the others at both."""
        rows: Records | tuple[()] = self.tables.operations.get((number, pid), ())
        from_runtime = {self._kind(row) for row in rows if self._driver_name(row) and row["caller"] == 1}
        at_runtime = {self._kind(row) for row in rows if not self._driver_name(row)}
        for row in rows:
            kind, inner = self._kind(row), self._driver_name(row) and row["caller"] == 1
            if kind in HOT_KINDS:
                twice = not self._driver_name(row) and kind in from_runtime
            else:
                twice = inner and kind in at_runtime
            if not twice:
                yield row

    def _kind(self, row: np.void) -> str:
        return self.tables.op_kind(int(row["op"]))

    def _driver_name(self, row: np.void) -> bool:
        return int(row["op"]) in self._driver_ops

    def _launching(self, pid: int) -> int:
        """The operation the process launches with most."""
        rows = self.facts.operations[self.facts.operations["pid"] == pid]
        counts: dict[int, int] = {}
        for row in rows:
            op = int(row["op"])
            if self.tables.op_kind(op) == "launch":
                counts[op] = counts.get(op, 0) + int(row["count"])
        return max(counts, key=lambda op: counts[op], default=0)

    @staticmethod
    def _mark_rare(job: Job) -> None:
        """Waits that come once in many iterations are no matter of the loop's pace."""
        pace = np.median([job.steps(each.number) / max(each.wall_ns, 1) for each in job.slices] or [0.0])
        for each in job.slices:
            # those it would have had: a slice may hold one such wait and little else
            steps = max(job.steps(each.number), pace * each.wall_ns)
            each.lost = [
                replace(lost, rare=True) if 0 < lost.waits < RARE_WAITS * steps else lost
                for lost in each.lost
            ]

    def _mark(self, job: Job) -> None:
        """Which slices are start-up, and which have holes."""
        first_ns = self.facts.at_ns(job.slices[0].number) if job.slices else 0
        cold = [
            each.number
            for each in job.slices
            if job.spent(each.number, *COLD_KINDS).ns >= COLD_SHARE * each.wall_ns
            and self.facts.at_ns(each.number) - first_ns <= COLD_REACH_NS
        ]
        last_cold = job.slices[0].number - 1 if job.slices else -1
        for number in cold:
            if number - last_cold > COLD_GAP:
                break
            last_cold = number
        last_cold = last_cold if cold and last_cold >= cold[0] else -1
        steady_ns = self._steady_ns(job)
        for each in job.slices:
            each.starting = self.facts.at_ns(each.number) < steady_ns
            each.cold = each.number <= last_cold or each.starting
            each.lossy = each.number in self._blind
