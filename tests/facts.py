"""Facts made up for tests of the diagnosis: a healthy job, and what a test changes about it.

`job()` is a loop of 100 iterations a second that waits for the GPU most of the time;
a test names only what matters: `job(runqueue=400, gap=True)` loses 400 ms of every
slice of two seconds to waiting for a core while the GPU has nothing to do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingero.correlate.timeline import Timeline
from ingero.detectors import Diagnosis, diagnose
from ingero.model import facts as model
from ingero.model.facts import Facts, OpFact, ProcessFact
from ingero.model.finding import Finding, Severity
from ingero.model.gpu_facts import GPU_SLICE, GPU_USER
from ingero.model.gpus import GpuCard
from ingero.model.layout import Bucket, WakerKind
from ingero.model.window import BUCKET_NAMES, BUCKETS
from tests.sites import Code

MS = 1_000_000
SECOND = 1_000_000_000
JOB, WORKER, HOG = 100, 200, 300
SLICES = 6
# Milliseconds lost of the two seconds of a slice, and what they are worth saying.
SEVERITIES = (
    (50, None),
    (70, Severity.LOW),
    (190, Severity.LOW),
    (210, Severity.MEDIUM),
    (490, Severity.MEDIUM),
    (510, Severity.HIGH),
    (990, Severity.HIGH),
    (1010, Severity.CRITICAL),
)

OPS = {
    1: OpFact("driver", "cuLaunchKernel", "launch"),
    2: OpFact("runtime", "cudaStreamSynchronize", "sync"),
    3: OpFact("driver", "cuMemcpyHtoDAsync_v2", "copy"),
    4: OpFact("runtime", "cudaMalloc", "alloc"),
    5: OpFact("runtime", "cudaFree", "free"),
    6: OpFact("driver", "cuCtxCreate_v2", "context"),
    7: OpFact("driver", "cuModuleLoadData", "module"),
    8: OpFact("graph", "cudaGraphLaunch", "graph"),
    9: OpFact("graph", "cudaGraphInstantiate", "graph"),
    10: OpFact("graph", "cudaStreamEndCapture", "graph"),
    11: OpFact("nccl", "ncclAllReduce", "collective"),
    12: OpFact("python", "gc_collect", "gc"),
    20: OpFact("driver", "cuMemcpyDtoH_v2", "copy"),
    21: OpFact("graph", "cudaStreamBeginCapture", "graph"),
    22: OpFact("driver", "cuMemHostAlloc", "alloc"),
    23: OpFact("driver", "cuMemMap", "alloc"),
    24: OpFact("driver", "cuMemsetD8Async", "set"),
    25: OpFact("driver", "cuMemcpyDtoDAsync_v2", "copy"),
}
BY_NAME = {op.name: number for number, op in OPS.items()}


@dataclass
class Story:
    """Facts under construction."""

    slices: int = SLICES
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    facts: Facts = field(default_factory=lambda: Facts("node", 0, 0, SLICES * 2 * SECOND, 8, agent_pid=999))
    names: dict[str, int] = field(default_factory=dict)
    code: Code = field(default_factory=Code)

    def __post_init__(self) -> None:
        self.facts.sites = self.code
        self.facts.to_ns = self.slices * self.facts.slice_ns
        self.facts.ops = dict(OPS)

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names) + 1)

    def _add(self, table: str, **columns: Any) -> None:
        self.rows.setdefault(table, []).append(columns)

    def process(self, pid: int, comm: str, parent: int | None = None, **more: Any) -> Story:
        self.facts.processes[pid] = ProcessFact(pid, comm, parent_pid=parent, **more)
        return self

    def thread(
        self,
        pid: int,
        comm: str,
        ms: dict[str, float],
        gap: dict[str, float] | None = None,
        tid: int | None = None,
        feeder: bool = False,
        rest: str = "gpu_wait",
        when: range | None = None,
        **more: float,
    ) -> Story:
        """Milliseconds per slice and bucket; what is left of two seconds goes to `rest`, if any."""
        spent = dict.fromkeys(BUCKET_NAMES, 0.0) | ms
        if rest:
            spent[rest] += 2000 - sum(spent.values())
        idle = dict.fromkeys(BUCKET_NAMES, 0.0) | (gap or {})
        for number in when or range(self.slices):
            self._add(
                "threads",
                slice=number,
                pid=pid,
                tid=tid or pid,
                comm=self.name(comm),
                feeder=feeder,
                ns=[int(spent[name] * MS) for name in BUCKET_NAMES],
                gap=[int(idle[name] * MS) for name in BUCKET_NAMES],
                **{name: int(value * MS) for name, value in more.items()},
            )
        return self

    def calls(
        self,
        name: str,
        count: int,
        ms: float,
        pid: int = JOB,
        when: range | None = None,
        size: int = 0,
        caller: int = 0,
        split: dict[str, float] | None = None,
        errors: int = 0,
        error: int | None = None,
    ) -> Story:
        """Calls per slice and the time in all of them together; `error`: an estimate, that far off."""
        parts = [0] * BUCKETS
        for bucket, part in (split or {}).items():
            parts[Bucket[bucket.upper()]] = int(part * MS)
        for number in when or range(self.slices):
            self._add(
                "operations", slice=number, pid=pid, op=BY_NAME[name], caller=caller, count=count,
                sum_ns=int(ms * MS), max_ns=int(ms * MS / max(count, 1)), bytes=size * count, errors=errors,
                recorded=count, split=parts, estimated=int(error is not None), error=error or 0,
            )  # fmt: skip
        return self

    def culprit(
        self,
        pid: int,
        comm: str,
        ms: float,
        victim: int = JOB,
        throttled: bool = False,
        when: range | None = None,
    ) -> Story:
        for number in when or range(self.slices):
            self._add(
                "culprits", slice=number, victim_pid=victim, victim_tid=victim, pid=0 if throttled else pid,
                comm=self.name(comm), throttled=throttled, ns=int(ms * MS), count=10,
            )  # fmt: skip
        return self

    def waker(
        self,
        by: int,
        comm: str,
        bucket: str,
        ms: float,
        of: int = JOB,
        kind: WakerKind = WakerKind.WAKER_TASK,
        when: range | None = None,
        count: int = 200,
        by_pid: int | None = None,
        of_pid: int | None = None,
    ) -> Story:
        for number in when or range(self.slices):
            self._add(
                "wakers", slice=number, pid=of_pid or of, tid=of,
                waker_pid=by_pid or by, waker_tid=by, kind=int(kind),
                comm=self.name(comm), bucket=int(Bucket[bucket.upper()]), ns=int(ms * MS), count=count,
            )  # fmt: skip
        return self

    def called(
        self,
        name: str,
        line: str,
        count: int = 1,
        ms: float = 0.0,
        size: int = 0,
        pid: int = JOB,
        tid: int | None = None,
        when: range | None = None,
    ) -> Story:
        """Calls of an operation come from a line, per slice: `called("cudaMalloc", "grow train.py:7")`."""
        for number in when or range(self.slices):
            self.code.call(self._at(number), pid, tid or pid, BY_NAME[name], line, count, ms * MS, size)
        return self

    def waited(
        self,
        bucket: str,
        line: str,
        ms: float,
        pid: int = JOB,
        tid: int | None = None,
        gil: bool = False,
        holder: int = 0,
        inside: str = "",
        when: range | None = None,
    ) -> Story:
        """A thread waits at a line, milliseconds per slice."""
        for number in when or range(self.slices):
            self.code.wait(
                self._at(number), pid, tid or pid, bucket, line, ms * MS, gil, holder, BY_NAME.get(inside, 0)
            )
        return self

    def sampled(
        self,
        line: str,
        count: int,
        pid: int = JOB,
        tid: int | None = None,
        bucket: str = "host_cpu",
        flags: int = 0,
        when: range | None = None,
    ) -> Story:
        """A thread is seen on its core at a line so often in every slice."""
        for number in when or range(self.slices):
            self.code.sample(self._at(number), pid, tid or pid, bucket, line, count, flags)
        return self

    def card(self, gpu_id: int = 0, **what: Any) -> Story:
        """A card as its driver describes it: an H200 but for what a test says."""
        usual = {
            "memory_bytes": 141 << 30, "sm_clock_max_mhz": 1980, "power_limit_default_mw": 700_000,
            "slowdown_c": 90, "pcie_gen_max": 5, "pcie_width_max": 16, "mig": False,
        }  # fmt: skip
        self.facts.cards.cards[gpu_id] = GpuCard(gpu_id, "NVIDIA H200", f"GPU-{gpu_id}", **(usual | what))
        return self

    def looked(self, gpu_id: int = 0, when: range | None = None, **seen: float) -> Story:
        """A card seen in these slices: busy, at its usual clock, held down by nothing, unless said."""
        if gpu_id not in self.facts.cards.cards:
            self.card(gpu_id)
        usual = {
            "samples": 2, "gpu_share": 0.95, "busy_clock_mhz": 1755, "forced_share": 0, "capped_share": 1,
            "reasons": 0x4, "power_mw": 695_000, "power_limit_mw": 700_000, "temperature_c": 62,
            "pcie_gen": 5, "pcie_width": 16, "memory_used_bytes": 20 << 30,
        }  # fmt: skip
        for number in when or range(self.slices):
            self._add("gpu_samples", slice=number, gpu_id=gpu_id, **(usual | seen))
        return self

    def on_card(
        self,
        pid: int,
        gpu_id: int = 0,
        sm: float | None = None,
        memory: int | None = None,
        when: range | None = None,
        name: str = "",
    ) -> Story:
        """A process that the driver lists on a card."""
        told = {"sm_share": sm, "memory_bytes": memory}
        for number in when or range(self.slices):
            known = {key: value for key, value in told.items() if value is not None}
            self._add("gpu_users", slice=number, gpu_id=gpu_id, pid=pid, **known)
        if name:
            self.facts.cards.names[pid] = name
        return self

    def _cards(self) -> None:
        for table, dtype in (("gpu_samples", GPU_SLICE), ("gpu_users", GPU_USER)):
            rows = self.rows.get(table, [])
            made = np.zeros(len(rows), dtype)
            for name in dtype.names or ():
                made[name] = [row.get(name, np.nan) for row in rows]
            setattr(self.facts.cards, table.removeprefix("gpu_"), made)

    def paced(self) -> Story:
        """With what happened second by second, so that there is a pace: half of its slice each."""
        self.facts.seconds = self._seconds
        self.facts.windows = self._windows
        self.facts.busy = self._busy
        return self

    def _seconds(self, pid: int) -> model.Records:
        rows = [
            (self._at(row["slice"]) + half * SECOND, row["op"], row["count"] // 2, int(not row["estimated"]))
            for row in self.rows.get("operations", [])
            if row["pid"] == pid
            for half in range(2)
        ]
        return np.array(sorted(rows), model.SECONDS)

    def _windows(self, pid: int, tid: int) -> dict[int, int]:
        mine = [row for row in self.rows["threads"] if (row["pid"], row["tid"]) == (pid, tid)]
        return {
            self._at(row["slice"]) + half * SECOND: sum(row["ns"]) // 2 for row in mine for half in range(2)
        }

    def _busy(self, _cards: Collection[int], spans: Sequence[tuple[int, int]]) -> float | None:
        shares = [
            row["gpu_share"]
            for row in self.rows.get("gpu_samples", [])
            if any(from_ns <= self._at(row["slice"]) < to_ns for from_ns, to_ns in spans)
        ]
        return float(np.mean(shares)) if shares else None

    def _at(self, number: int) -> int:
        return self.facts.at_ns(number)

    def line(self, kind: str) -> str | None:
        """The line of the finding of this kind, as `function file:line`; None: it has none."""
        finding = next(each for each in self.findings() if each.kind == kind)
        source = finding.source
        return f"{source.function} {source.file}:{source.line}" if source else None

    def timeline(self) -> Timeline:
        self.facts.strings = {number: text for text, number in self.names.items()}
        self._cards()
        for table, dtype in (
            ("threads", model.THREADS),
            ("operations", model.OPERATIONS),
            ("culprits", model.CULPRITS),
            ("wakers", model.WAKERS),
        ):
            rows = self.rows.get(table, [])
            made = np.zeros(len(rows), dtype)
            for at, row in enumerate(rows):
                for name, value in row.items():
                    made[name][at] = value
            setattr(self.facts, table, made)
        return Timeline(self.facts)

    def diagnose(self) -> Diagnosis:
        return diagnose(self.timeline())

    def findings(self) -> list[Finding]:
        return self.diagnose().findings

    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings()]

    def severity(self, kind: str) -> Severity | None:
        """How bad the finding of this kind is; None: there is none."""
        return next((finding.severity for finding in self.findings() if finding.kind == kind), None)

    def abstains(self, kind: str, source: str) -> bool:
        """Without a source: says that it does not watch, and nothing else."""
        self.facts.absent = {source: "the kernel refused it"}
        diagnosis = self.diagnose()
        said = {finding.kind for finding in diagnosis.findings}
        return kind not in said and kind in {each.what for each in diagnosis.not_watched}


def job(
    ms: dict[str, float] | None = None,
    gap: dict[str, float] | None = None,
    *,
    pid: int = JOB,
    steps: int = 200,
    story: Story | None = None,
    when: range | None = None,
    slices: int = SLICES,
    **more: float,
) -> Story:
    """A feeding process: per slice 200 iterations of 50 launches, one copy and one wait for the GPU."""
    story = story or Story(slices)
    story.process(pid, "python3")
    usual = {"cuda_cpu": 60.0, "host_cpu": 100.0}
    story.thread(
        pid, "python3", usual | (ms or {}), gap or {"host_cpu": 20.0}, feeder=True, when=when, **more
    )
    story.calls("cuLaunchKernel", 50 * steps, 50, pid, when, caller=1)
    story.calls("cudaStreamSynchronize", steps, 1500, pid, when, split={"gpu_wait": 1500})
    story.calls("cuMemcpyHtoDAsync_v2", steps, 4, pid, when, size=1 << 20, caller=1)
    return story
