"""The line of a finding: the one that its own evidence points to, and not the neighbour's.

Every case has lines beside the right one that weigh more by another measure: of
another process, thread, operation or bucket, or of another time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ingero.detectors import ALL
from ingero.detectors.finding_lines import WEIGHTS
from ingero.model.facts import ErrorFact
from ingero.model.finding import Finding
from ingero.model.layout import SampleFlag
from ingero.model.sites import Sites
from tests.facts import HOG, JOB, SECOND, WORKER, Story, job
from tests.sites import LIBRARY
from tests.unit.detectors.rounds import PIDS
from tests.unit.detectors.test_nccl_hang import hung
from tests.unit.detectors.test_nccl_straggler import LATE
from tests.unit.detectors.test_nccl_straggler import straggling as late_rank
from tests.unit.detectors.test_periodic_spike import spiking

RIGHT, WRONG, OTHER = "right train.py:10", "wrong train.py:20", "other train.py:30"
COLLECTING = int(SampleFlag.SAMPLE_COLLECTING)
GIL = int(SampleFlag.SAMPLE_GIL)
CRUNCHER, IDLER, HELPER = 101, 102, 205
COPY, SYNC, LAUNCH = "cuMemcpyHtoDAsync_v2", "cudaStreamSynchronize", "cuLaunchKernel"


def sync_heavy() -> Story:
    story = job({"host_cpu": 900.0, "cuda_cpu": 0.0}, {"host_cpu": 20.0}, slices=12)
    story.calls(SYNC, 1800, 100, split={"gpu_wait": 100})
    story.called(SYNC, RIGHT, 1200, 90).called(SYNC, OTHER, 800, 10)
    return story.called(COPY, WRONG, 9000, 900).called(SYNC, WRONG, 9000, 900, pid=HOG)


def launch_bound() -> Story:
    story = Story(12).process(JOB, "python3")
    busy = {"gpu_wait": 100.0, "host_cpu": 900.0}
    story.thread(JOB, "python3", busy, {"host_cpu": 20.0}, feeder=True, rest="cuda_cpu")
    story.calls(LAUNCH, 100_000, 900, caller=1).calls(SYNC, 200, 100, split={"gpu_wait": 100})
    story.called(LAUNCH, RIGHT, 90_000, 100).called(LAUNCH, OTHER, 10_000, 800)
    return story.called(SYNC, WRONG, 200, 9000).sampled(OTHER, 90)


def copy_bound() -> Story:
    story = job({"cuda_cpu": 460.0}, {"cuda_cpu": 400.0}, slices=12)
    story.calls(COPY, 100, 400, size=4 << 20, caller=1)
    return story.called(COPY, RIGHT, 10, 380).called(COPY, OTHER, 90, 20).called(LAUNCH, WRONG, 9000, 900)


def alloc_churn() -> Story:
    story = job({"cuda_cpu": 660.0}, {"cuda_cpu": 600.0}, slices=12)
    story.calls("cudaMalloc", 400, 300, size=1 << 20).calls("cudaFree", 400, 300)
    story.called("cudaMalloc", RIGHT, 390, 10).called("cudaFree", RIGHT, 390, 10)
    return story.called("cudaMalloc", OTHER, 10, 290).called(LAUNCH, WRONG, 90_000, 50)


def memory_leak() -> Story:
    story = job(slices=12).calls("cudaMalloc", 200, 2, size=1 << 20)
    story.code.keep(RIGHT, 200 << 20)
    story.code.keep(OTHER, 1 << 20)
    return story.called("cudaMalloc", WRONG, 9000, 2, size=9 << 20)


def data_starvation() -> Story:
    """The job waits at one line while its worker computes at another."""
    waits = {"peer_wait": 800.0}
    story = job(waits, waits, slices=12).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {}, rest="host_cpu").waker(WORKER, "loader", "peer_wait", 800)
    story.waited("peer_wait", RIGHT, 700).waited("peer_wait", OTHER, 50)
    story.waited("disk_wait", WRONG, 900).waited("peer_wait", WRONG, 900, tid=IDLER)
    return story.sampled("load loader.py:5", 90, pid=WORKER).sampled(WRONG, 400)


def by_itself() -> Story:
    story = job({"host_cpu": 1200.0}, {"host_cpu": 1000.0}, slices=12)
    story.sampled(RIGHT, 50).sampled(WRONG, 90, tid=IDLER).sampled(WRONG, 90, pid=HOG)
    return story.sampled(WRONG, 90, bucket="gpu_wait").waited("peer_wait", WRONG, 900)


def crowded_by_workers() -> Story:
    """The job loses its core at every line alike; its workers, which have it, compute at one."""
    lost = {"runqueue": 600.0}
    story = job(lost, lost, slices=12).process(WORKER, "loader", parent=JOB)
    story.culprit(WORKER, "loader", 500).sampled(RIGHT, 90, pid=WORKER)
    story.process(HELPER, "helper", parent=JOB).culprit(HELPER, "helper", 40).culprit(JOB, "python3", 60)
    return story.sampled(WRONG, 400).sampled(WRONG, 400, pid=HOG).sampled(WRONG, 400, pid=HELPER)


def disk_wait() -> Story:
    lost = {"disk_wait": 600.0}
    story = job(lost, lost, slices=12).waited("disk_wait", RIGHT, 500)
    return story.waited("peer_wait", WRONG, 900).waited("disk_wait", WRONG, 900, pid=HOG)


def disk_of_the_worker() -> Story:
    waits = {"peer_wait": 1000.0}
    story = job(waits, waits).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {"host_cpu": 100.0}, rest="disk_wait")
    story.waker(WORKER, "loader", "peer_wait", 1000).waited("disk_wait", RIGHT, 900, pid=WORKER)
    return story.waited("peer_wait", WRONG, 950)


def gil_contention() -> Story:
    lost = {"lock_wait": 600.0}
    story = job(lost, lost, slices=12, gil_ns=600)
    story.thread(JOB, "cruncher", {"host_cpu": 1500.0}, tid=CRUNCHER, rest="lock_wait")
    story.waited("lock_wait", OTHER, 590, gil=True, holder=CRUNCHER)
    story.waited("lock_wait", OTHER, 10, gil=True, holder=IDLER)
    story.sampled(RIGHT, 30, tid=CRUNCHER, flags=GIL).sampled(WRONG, 60, tid=CRUNCHER)
    return story.sampled(WRONG, 90, flags=GIL).sampled(WRONG, 90, tid=IDLER, flags=GIL)


def gc_pause() -> Story:
    story = job({"host_cpu": 700.0}, {"host_cpu": 600.0}, slices=12)
    story.calls("gc_collect", 20, 600, split={"host_cpu": 600})
    return story.sampled(RIGHT, 10, flags=COLLECTING).sampled(WRONG, 90)


def cpu_contention() -> Story:
    lost = {"runqueue": 600.0}
    story = job(lost, lost, slices=12).process(HOG, "stress").culprit(HOG, "stress", 600)
    story.waited("runqueue", RIGHT, 300).waited("runqueue", WRONG, 900, inside=SYNC)
    return story.waited("peer_wait", WRONG, 900).waited("runqueue", WRONG, 900, pid=HOG)


def slow_peer() -> Story:
    waits = {"peer_wait": 800.0}
    story = job(waits, waits, slices=12).process(HOG, "server", parent=1)
    story.thread(HOG, "server", {}, rest="host_cpu").waker(HOG, "server", "peer_wait", 800)
    return story.waited("peer_wait", RIGHT, 700).waited("sleep", WRONG, 900)


def memory_pressure() -> Story:
    lost = {"memory_wait": 600.0}
    return job(lost, lost, slices=12).waited("memory_wait", RIGHT, 500).waited("peer_wait", WRONG, 900)


def cuda_error() -> Story:
    story = job().called(LAUNCH, WRONG, 9000, 900)
    story.facts.errors = [ErrorFact(JOB, JOB, LAUNCH, 700, 3, SECOND, 2 * SECOND, "node:5")]
    story.code.events = {"node:5": RIGHT, "node:6": WRONG}
    return story


def cuda_oom() -> Story:
    story = job().called("cudaMalloc", WRONG, 9000, 9, size=1 << 30)
    story.facts.errors = [ErrorFact(JOB, JOB, "cudaMalloc", 2, 3, SECOND, 2 * SECOND, "node:5")]
    story.code.events = {"node:5": RIGHT}
    return story


def cold_start() -> Story:
    story = job(slices=6).calls("cuModuleLoadData", 10, 1500, when=range(3))
    story.called("cuModuleLoadData", RIGHT, 10, 1500, when=range(3))
    return story.called(LAUNCH, WRONG, 9000, 1900).called(
        "cuModuleLoadData", WRONG, 9, 9000, when=range(4, 6)
    )


def nccl_hang() -> Story:
    story = hung()
    story.code.last = {PIDS[0]: RIGHT, PIDS[3]: WRONG}
    return story


def straggling() -> Story:
    story = late_rank(3)
    for pid in PIDS:
        story.called("ncclAllReduce", WRONG if pid == PIDS[LATE] else RIGHT, 100, 1, pid=pid)
    return story.sampled("slow train.py:44", 80, pid=PIDS[LATE])


def periodic_spike() -> Story:
    """A spike of 500 ms in every 1.5 s, at a line that is not there between them."""
    story = spiking(500)
    for second in range(24):
        inside = sum(
            max(0.0, min(start + 0.5, second + 1) - max(start, second))
            for start in (1.0 + 1.5 * number - 0.01 for number in range(16))
        )
        story.code.sample(second * SECOND, JOB, JOB, "host_cpu", RIGHT, round(49 * inside), 0)
        story.code.sample(second * SECOND, JOB, JOB, "host_cpu", WRONG, round(49 * (1 - inside)) + 20, 0)
    return story


CASES: dict[str, tuple[Callable[[], Story], str]] = {
    "sync-heavy": (sync_heavy, RIGHT),
    "launch-bound": (launch_bound, RIGHT),
    "copy-bound": (copy_bound, RIGHT),
    "alloc-churn": (alloc_churn, RIGHT),
    "gpu-memory-leak": (memory_leak, RIGHT),
    "data-starvation": (data_starvation, RIGHT),
    "data-starvation by itself": (by_itself, RIGHT),
    "data-starvation by more workers than cores": (crowded_by_workers, RIGHT),
    "disk-wait": (disk_wait, RIGHT),
    "disk-wait of the worker": (disk_of_the_worker, RIGHT),
    "gil-contention": (gil_contention, RIGHT),
    "gc-pause": (gc_pause, RIGHT),
    "cpu-contention": (cpu_contention, RIGHT),
    "slow-peer": (slow_peer, RIGHT),
    "memory-pressure": (memory_pressure, RIGHT),
    "cuda-error": (cuda_error, RIGHT),
    "cuda-oom": (cuda_oom, RIGHT),
    "cold-start": (cold_start, RIGHT),
    "nccl-hang": (nccl_hang, RIGHT),
    "nccl-straggler": (straggling, RIGHT),
    "periodic-spike": (periodic_spike, RIGHT),
}


def found(name: str) -> Finding:
    kind = name.partition(" ")[0]
    return next(each for each in CASES[name][0]().findings() if each.kind == kind)


@pytest.mark.parametrize("name", CASES)
def test_the_line_is_the_one_its_own_evidence_points_to(name: str) -> None:
    finding = found(name)
    assert finding.source is not None
    assert f"{finding.source.function} {finding.source.file}:{finding.source.line}" == CASES[name][1]


@pytest.mark.parametrize("name", CASES)
def test_the_stack_is_the_whole_one_of_that_line(name: str) -> None:
    stack = found(name).stack
    assert [frame.kind for frame in stack] == ["native", "python", "python", "python"]
    assert (stack[1].file, stack[2].function, stack[3].function) == (LIBRARY, "right", "main")


@pytest.mark.parametrize("name", CASES)
def test_the_line_is_proven(name: str) -> None:
    finding = found(name)
    proofs = finding.causes[0].evidence if finding.causes else finding.evidence
    assert any("right() train.py:10" in proof.text for proof in proofs)


@pytest.mark.parametrize("name", CASES)
def test_without_stacks_everything_but_the_line_is_the_same(name: str) -> None:
    story = CASES[name][0]()
    with_lines = story.findings()
    story.facts.sites = Sites()
    without = story.findings()
    assert [(each.kind, each.severity, each.title) for each in without] == [
        (each.kind, each.severity, each.title) for each in with_lines
    ]
    assert all(each.source is None and each.stack == [] for each in without)


def test_the_worker_that_is_waited_for_is_the_second_evidence() -> None:
    texts = [proof.text for proof in found("data-starvation").causes[0].evidence]
    assert any("computed at load() loader.py:5" in text for text in texts)


def test_a_job_that_crowds_itself_has_no_line_of_the_others() -> None:
    story = crowded_by_workers().culprit(JOB, "python3", 900)
    finding = next(each for each in story.findings() if each.kind == "data-starvation")
    assert "train.py:10" not in str(finding)


def test_the_late_ranks_own_line_is_told_beside_the_collective() -> None:
    texts = [proof.text for proof in found("nccl-straggler").causes[0].evidence]
    assert any("the late rank computes at slow() train.py:44" in text for text in texts)


def test_a_healthy_run_has_no_finding_whatever_its_lines_weigh() -> None:
    story = job(slices=12)
    for name in (SYNC, LAUNCH, COPY):
        story.called(name, WRONG, 9000, 900, size=1 << 30)
    story.waited("disk_wait", WRONG, 900).sampled(WRONG, 98, flags=COLLECTING | GIL)
    assert story.findings() == []


def test_only_the_time_the_finding_covers_counts() -> None:
    lost = {"disk_wait": 600.0}
    story = job(when=range(6), slices=12)
    job(lost, lost, story=story, when=range(6, 12))
    story.waited("disk_wait", WRONG, 900, when=range(5)).waited("disk_wait", RIGHT, 100, when=range(6, 12))
    assert story.line("disk-wait") == RIGHT


def test_one_of_many_lines_is_not_the_line() -> None:
    lost = {"disk_wait": 600.0}
    story = job(lost, lost, slices=12)
    for number in range(1, 31):
        story.waited("disk_wait", f"read train.py:{number}", 20)
    assert story.line("disk-wait") is None


def test_waits_without_a_stack_make_the_line_less_certain() -> None:
    lost = {"disk_wait": 600.0}
    story = job(lost, lost, slices=12).waited("disk_wait", "", 580).waited("disk_wait", RIGHT, 20)
    assert story.line("disk-wait") is None


def test_every_kind_of_evidence_a_detector_names_is_known() -> None:
    for detector in ALL:
        assert {line.by for line in detector.lines} <= set(WEIGHTS)


def test_calls_whose_stack_was_walked_stand_for_those_whose_was_not() -> None:
    story = job(slices=12).calls("cudaMalloc", 400, 300, size=1 << 20).calls("cudaFree", 400, 300)
    story.called("cudaMalloc", "", 390, 290).called("cudaMalloc", RIGHT, 10, 8)
    assert story.line("alloc-churn") == RIGHT
