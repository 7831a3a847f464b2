"""A story as the windows capture would have made of it. Deterministic by seed.

The numbers agree with each other as real ones do: every thread's buckets sum to the
window, a call's split to its duration, culprits to the time a core was waited for;
counts and histograms hold every call while only some have a record.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ingero.model.layout import Bucket, SampleFlag, WakerKind
from ingero.model.sites import SAMPLE_NS
from ingero.model.window import (
    CULPRIT,
    SAMPLE,
    THREAD_TIME,
    WAKER,
    Container,
    Process,
    Records,
    SystemSample,
    Window,
)
from ingero.scenarios.code import ProgramPlace, stack_hash, stacks
from ingero.scenarios.cut import CutThread
from ingero.scenarios.job import OPERATIONS, MadeUpJob, timed
from ingero.scenarios.scenario import MS, SECOND, Phase, Program, Story
from ingero.scenarios.thread import Thread

__all__ = ["CORES", "OPERATIONS", "TRAINER", "windows"]

TRAINER, FIRST_WORKER = 4821, 4830
COMM, WORKER_COMM = "python3", "pt_data_worker"
COMMAND = "python3 train.py --epochs 3"
CGROUP = 7316
CORES = 4
MEMORY_SHARE, FREE_BYTES = 0.58, 27 << 30


def windows(story: Story, seed: int, start_ns: int, boot_ns: int = 0) -> Iterator[Window]:
    """One window a second from `start_ns` (monotonic); `boot_ns` is when the processes started."""
    cast = _Cast(story, np.random.default_rng(seed), start_ns, boot_ns)
    for number, (first_ns, end_ns, phase) in enumerate(cast.phases):
        for at in range(first_ns, end_ns, SECOND):
            yield cast.window(number, phase, at)


class _Cast:
    """Everybody who plays in a story."""

    def __init__(self, story: Story, random: np.random.Generator, start_ns: int, boot_ns: int) -> None:
        self._story, self._random, self._boot = story, random, boot_ns
        self.phases = list(timed(story.phases, start_ns))
        self._start = start_ns
        self._workers = tuple(range(FIRST_WORKER, FIRST_WORKER + story.workers))
        self._noise = story.neighbours.pids if story.neighbours else ()
        self._names = dict.fromkeys(self._workers, WORKER_COMM) | {TRAINER: COMM}
        for program in (story.neighbours, story.rival):
            self._names |= dict.fromkeys(program.pids, program.comm) if program else {}
        self._feeders = [self._trainer(), *self._rivals()]

    def _trainer(self) -> CutThread:
        thread = Thread(TRAINER, self._start, self._random)
        MadeUpJob(thread, self._random, self._workers, self._noise).play(
            [(end, each) for _, end, each in self.phases]
        )
        return CutThread(thread, self.phases[-1][1], COMM, CGROUP, self._names)

    def _rivals(self) -> Iterator[CutThread]:
        """Another process on the card, once for each phase it runs in."""
        rival = self._story.rival
        for number, phase in self._story.rival_phases.items():
            assert rival is not None
            start_ns, end_ns, _ = self.phases[number]
            thread = Thread(rival.pids[0], start_ns, self._random)
            MadeUpJob(thread, self._random, collective=False).play([(end_ns, phase)])
            yield CutThread(thread, end_ns, rival.comm, 0, self._names)

    def window(self, number: int, phase: Phase, at: int) -> Window:
        playing = [each for each in self._feeders if each.lives_at(at)]
        workers = [self._worker(pid, phase, at) for pid in self._workers]
        operations = _all(each.operations(at) for each in playing)
        calls = [each.records(at) for each in playing]
        window = Window(
            at,
            at + SECOND,
            calls=_all([records for records, _ in calls]),
            call_stacks=np.concatenate([hashes for _, hashes in calls]),
            waits=_all(each.waits(at) for each in playing),
            wait_stacks=np.concatenate([each.wait_stacks(at) for each in playing]),
            samples=_all([*(each.samples(at) for each in playing), *map(_computing, workers)]),
            operations=operations,
            threads=_all([*(each.time(at) for each in playing), *workers]),
            culprits=_all([*(each.culprits(at) for each in playing), *map(self._displaced, workers)]),
            wakers=_all([*(each.wakers(at) for each in playing), *map(_asked, workers)]),
            system=self._system(phase),
            hits=int(operations["count"].sum()),
            agent_cpu_ns=int(self._random.normal(9 * MS, MS)),
        )
        if at == self.phases[number][0]:
            self._introduce(window, number, phase)
        return window

    def _worker(self, pid: int, phase: Phase, at: int) -> Records:
        """A second of a process that prepares batches, and mostly waits to be asked for more."""
        row = np.zeros(1, THREAD_TIME)
        row["window_ns"], row["pid"], row["tid"], row["comm"] = at, pid, pid, WORKER_COMM.encode()
        between = self._random.uniform
        ns = row["ns"][0]
        ns[Bucket.HOST_CPU] = between(0.24, 0.30) * SECOND
        ns[Bucket.DISK_WAIT] = between(0.01, 0.02) * SECOND
        ns[Bucket.RUNQUEUE] = (phase.per_core * between(0.9, 1.0) * ns[Bucket.HOST_CPU]) or MS
        ns[Bucket.PEER_WAIT] = SECOND - ns.sum()
        row["voluntary_switches"] = self._random.integers(20, 40)
        row["involuntary_switches"] = ns[Bucket.RUNQUEUE] // (3 * MS)
        return row

    def _displaced(self, worker: Records) -> Records:
        """Who had the worker's core: the neighbours where there are any, else nobody in particular."""
        ns = int(worker["ns"][0, Bucket.RUNQUEUE])
        if ns <= MS or not self._noise:
            return np.zeros(0, CULPRIT)
        others = self._random.choice(self._noise, min(2, len(self._noise)), replace=False)
        rows = np.zeros(len(others), CULPRIT)
        rows["victim_pid"] = rows["victim_tid"] = worker["pid"]
        rows["pid"], rows["bucket"] = others, Bucket.RUNQUEUE
        rows["comm"] = [self._names[int(pid)].encode() for pid in others]
        rows["ns"], rows["count"] = ns // len(others), ns // (3 * MS)
        rows["ns"][0] += ns % len(others)
        return rows

    def _system(self, phase: Phase) -> SystemSample:
        busy = float(np.clip(self._random.normal(phase.cpu_share, 0.01), 0, 1))
        waiting = 0.62 if phase.per_core else 0.02
        load = busy * CORES * (1 + phase.per_core)
        return SystemSample(busy, MEMORY_SHARE, FREE_BYTES, load, CORES, 0, psi_cpu_some=waiting)

    def _introduce(self, window: Window, number: int, phase: Phase) -> None:
        """Who they are is told when they appear."""
        began = self._boot + window.start_ns - self._start
        if number == 0:
            window.stacks = stacks()
            window.containers = [_container()]
            window.processes.append(Process(TRAINER, began, COMM, COMMAND, CGROUP, 1000, 1))
            window.processes += [
                Process(pid, began, WORKER_COMM, COMMAND, CGROUP, 1000, TRAINER) for pid in self._workers
            ]
        if phase.per_core and self._story.neighbours:
            window.bystanders = _strangers(self._story.neighbours, began, target=False)
        if number in self._story.rival_phases and self._story.rival:
            window.processes += _strangers(self._story.rival, began, target=True)


def _strangers(program: Program, began: int, *, target: bool) -> list[Process]:
    return [
        Process(pid, began, program.comm, program.cmdline, 0, 1001, 1, target=target) for pid in program.pids
    ]


def _asked(worker: Records) -> Records:
    """A worker's waits end when the trainer asks for the next batch."""
    rows = np.zeros(1, WAKER)
    rows["pid"] = rows["tid"] = worker["pid"]
    rows["waker_pid"] = rows["waker_tid"] = TRAINER
    rows["kind"], rows["bucket"], rows["comm"] = WakerKind.WAKER_TASK, Bucket.PEER_WAIT, COMM.encode()
    rows["ns"], rows["count"] = worker["ns"][0, Bucket.PEER_WAIT], worker["voluntary_switches"]
    return rows


def _computing(worker: Records) -> Records:
    """A worker seen on its core, in the only thing it does there."""
    rows = np.zeros(1, SAMPLE)
    rows["pid"] = rows["tid"] = worker["pid"]
    rows["bucket"], rows["flags"] = Bucket.HOST_CPU, SampleFlag.SAMPLE_GIL
    rows["stack_hash"] = stack_hash(ProgramPlace.LOAD_ITEM)
    rows["count"] = round(int(worker["ns"][0, Bucket.HOST_CPU]) / SAMPLE_NS)
    return rows


def _all(parts: Iterator[Records] | list[Records]) -> Records:
    return np.concatenate(list(parts))


def _container() -> Container:
    identity = "3f2a9c41d7be" + "0" * 52
    path = f"/kubepods.slice/pod7d1c/cri-containerd-{identity}.scope"
    return Container(CGROUP, path, identity, "containerd", "nightly-retraining-0", "ml", None)
