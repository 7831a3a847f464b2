"""Jobs made up second by second and written to a real database: steady, then slower for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ingero.model.facts import GPU_LAG_NS
from ingero.model.finding import Finding
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.report import Report
from ingero.model.sites import SAMPLES_PER_SECOND
from ingero.model.window import BUCKET_NAMES, Annotation, Records, Window
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.store.writer import Writer
from tests import builders
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, fixed_clock
from tests.sites import resolved

JOB, HOG = 100, 300
BEGIN_S = 600  # after the job began: it is not starting any more
LAUNCHES = 20  # of a step
HOST_SHARE, CALL_SHARE = 0.08, 0.04  # of a usual step; the rest waits for the GPU
ON_CORE = ("host_cpu", "cuda_cpu")
STEP = "step train.py:10"
SLOW = "slow train.py:99"  # where the extra time goes by
STACKS = {1: STEP, 2: SLOW}


@dataclass(frozen=True)
class Slower:
    """From one instant to another, in seconds: `fall` of the pace is lost to one bucket."""

    first: float
    last: float
    fall: float
    bucket: str

    def part(self, second: int) -> float:
        """Of this second."""
        return max(0.0, min(second + 1.0, self.last) - max(float(second), self.first))


@dataclass(frozen=True)
class PacedJob:
    """So many steps a second, each of 20 launches, a copy and a wait; `noise` of a second's steps, each.

    `card`: it tells how busy it is, and is busy while it is waited for, and when it has more to do. `lines`:
    what is on a core was sampled, and long waits have their stack. `says`: the job labels its steps, and no
    call tells of them.
    """

    seconds: int
    pace: float
    slower: Slower | None = None
    noise: Sequence[float] = field(default=(0.0,))
    card: bool = False
    lines: bool = False
    says: bool = False

    def write(self, path: Path) -> Path:
        step = 0
        with Writer(path, "node", fixed_clock(), OPERATIONS) as writer:
            for second in range(self.seconds):
                steps, made = self._window(second)
                if self.says:
                    made = replace(made, annotations=_said(second, step, steps))
                assert not writer.write(made)
                step += steps
        return path

    def _window(self, second: int) -> tuple[int, Window]:
        slower = self.slower
        part = slower.part(second) if slower else 0.0
        lost = part * slower.fall if slower else 0.0
        steps = max(1, round(self.pace * (1 - lost) * (1 + self.noise[second % len(self.noise)])))
        spent = dict.fromkeys(BUCKET_NAMES, 0.0)
        spent |= {"host_cpu": HOST_SHARE * (1 - lost), "cuda_cpu": CALL_SHARE * (1 - lost)}
        spent["gpu_wait"] = (1 - HOST_SHARE - CALL_SHARE) * (1 - lost)
        if slower:
            spent[slower.bucket] += lost
        ns = {name: int(share * SECOND) for name, share in spent.items()}
        thread = builders.thread(JOB)
        thread["ns"] = builders.split(**ns)
        culprits = [builders.culprit(JOB, HOG, "hog", ns["runqueue"])] if ns["runqueue"] else []
        told = int(self.pace) if self.says else steps  # one call a step, or as many whatever the steps do
        return steps, builders.window(
            (BEGIN_S + second) * SECOND,
            threads=[thread],
            operations=[
                _calls("cuLaunchKernel", LAUNCHES * told, ns["cuda_cpu"], cuda_cpu=ns["cuda_cpu"]),
                _calls("cudaStreamSynchronize", told, ns["gpu_wait"], gpu_wait=ns["gpu_wait"]),
                _calls("cuMemcpyHtoDAsync_v2", told, told * 5_000),
            ],
            processes=[] if second else [builders.process(JOB, start_ns=0)],
            **({"culprits": culprits} if culprits else {}),
            **({"gpus": _card(second, ns["gpu_wait"] / SECOND)} if self.card else {}),
            **(self._code(second, int(lost * SECOND)) if self.lines else {}),
        )

    def _code(self, second: int, lost_ns: int) -> dict[str, Any]:
        """Where it stood: samples on a core, waits elsewhere."""
        bucket = self.slower.bucket if self.slower and lost_ns else None
        usual = round(SAMPLES_PER_SECOND * HOST_SHARE)
        parts: dict[str, Any] = {"samples": [builders.sample(1, usual, pid=JOB)]}
        if bucket in ON_CORE:
            seen = max(1, round(lost_ns * SAMPLES_PER_SECOND / SECOND))
            parts["samples"].append(builders.sample(2, seen, pid=JOB, bucket=bucket))
        elif bucket not in (None, "runqueue", "gpu_wait"):
            at_ns = (BEGIN_S + second) * SECOND
            parts["waits"] = [builders.wait(bucket, lost_ns, at_ns=at_ns, pid=JOB)]
            parts["wait_stacks"] = np.array([2], np.int64)
        stacks = [resolved(line, number) for number, line in STACKS.items()]
        return parts | {"stacks": [] if second else stacks}


def _said(second: int, step: int, steps: int) -> list[Annotation]:
    begin = (BEGIN_S + second) * SECOND
    return [
        Annotation(JOB, begin + number * SECOND // steps, "step", str(step + number))
        for number in range(steps)
    ]


def _card(second: int, busy: float) -> GpuNews:
    """A sample tells of the second before it."""
    at_ns = (BEGIN_S + second) * SECOND + GPU_LAG_NS
    sample = GpuSample(0, at_ns, busy, sm_clock_mhz=1980, reasons=0)
    cards = () if second else (GpuCard(0, "NVIDIA H200", sm_clock_max_mhz=1980),)
    return GpuNews(cards, (sample,), (GpuProcess(0, at_ns, JOB, "python", sm_share=busy),))


def _calls(op: str, count: int, took_ns: int, **split: int) -> Records:
    record = builders.operation(op, [max(took_ns // count, 1)] * count, pid=JOB, bytes=count << 20)
    record["split"] = builders.split(**split)
    return np.asarray(record)


def explained(db: Path, first_s: float | None = None, last_s: float | None = None) -> Report:
    """What is said about all of it, or a part."""
    return get_report(db, Range(start=_local(first_s), end=_local(last_s)))


def _local(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(EPOCH_NS / 1e9 + BEGIN_S + at_s).isoformat()


def over(findings: Sequence[Finding], first_s: float, last_s: float) -> list[Finding]:
    """Those that cover most of a time."""
    first, last = (EPOCH_NS + (BEGIN_S + at_s) * SECOND for at_s in (first_s, last_s))
    return [
        each
        for each in findings
        if min(each.last_ns, last) - max(each.first_ns, first) >= 0.5 * (last - first)
    ]
