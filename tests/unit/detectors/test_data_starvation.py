"""Data starvation: the batch is not ready, by workers, by a loading thread, or by the job itself."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SECOND, SEVERITIES, WORKER, Story, job

KIND = "data-starvation"
PINNER = 101


def starved(ms: float, busy: dict[str, float] | None = None, rest: str = "host_cpu") -> Story:
    """The job waits for a worker, which does `busy` and `rest`."""
    waits = {"peer_wait": ms}
    story = job(waits, waits, slices=12).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", busy or {}, rest=rest)
    return story.waker(WORKER, "loader", "peer_wait", ms)


@pytest.mark.parametrize(("rest", "word"), [("host_cpu", "compute"), ("sleep", "sleep")])
def test_a_worker_that_is_slow_is_named_with_what_it_does(rest: str, word: str) -> None:
    (finding,) = starved(800, rest=rest).findings()
    assert finding.kind == KIND
    assert f"1 loader workers {word}" in finding.title
    assert finding.causes[0].bucket == rest
    assert finding.causes[0].via == ["loader"]
    assert [who.pid for who in finding.causes[0].who] == [WORKER]
    assert "num_workers=7" in (finding.fix[0].code or "")


def test_no_more_workers_are_advised_than_the_job_has_cores() -> None:
    (finding,) = starved(800).process(JOB, "python3", cpus=(4, 5, 6)).findings()
    assert "num_workers=2" in (finding.fix[0].code or "")


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert starved(ms).severity(KIND) is severity


def test_all_the_time_waited_can_be_won() -> None:
    (finding,) = starved(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_a_loading_thread_of_the_job_itself_is_followed() -> None:
    waits = {"lock_wait": 800.0}
    story = job(waits, waits).thread(JOB, "pin_memory", {}, tid=PINNER, rest="host_cpu")
    (finding,) = story.waker(PINNER, "pin_memory", "lock_wait", 800, by_pid=JOB).findings()
    assert finding.kind == KIND
    assert "pin_memory threads" in finding.title


def test_more_workers_than_cores_is_the_pipelines_fault_and_not_the_cores() -> None:
    story = starved(800, {"runqueue": 1500.0}).process(201, "loader", parent=JOB)
    finding = story.culprit(201, "loader", 1500, victim=WORKER).findings()[0]
    assert finding.kind == KIND
    assert finding.causes[0].bucket == "runqueue"
    assert "More busy workers than cores" in finding.title


def test_the_job_that_prepares_its_data_itself_is_told_to_use_workers() -> None:
    (finding,) = job({"host_cpu": 1200.0}, {"host_cpu": 1000.0}).findings()
    assert finding.kind == KIND
    assert finding.title == "python3 works on the CPU while the GPU has nothing to do"
    assert "num_workers" in (finding.fix[0].code or "")


def test_little_work_between_two_steps_is_the_way_programs_are() -> None:
    assert job({"host_cpu": 780.0}, {"host_cpu": 580.0}).kinds() == []


def test_tiny_steps_are_not_data_starvation() -> None:
    assert KIND not in job({"host_cpu": 1200.0}, {"host_cpu": 1000.0}, steps=2000).kinds()


@pytest.mark.parametrize(("error", "told"), [(None, True), (60_000, False)])
def test_work_that_may_be_calls_nobody_saw_is_no_data(error: int | None, told: bool) -> None:
    """Hot calls are watched a part of the time: what they take in between looks like its own work."""
    story = Story(6).process(JOB, "x").thread(JOB, "x", {"host_cpu": 1500.0, "lock_wait": 500.0}, feeder=True)
    story.calls("cudaStreamSynchronize", 200, 1).calls("cuLaunchKernel", 4000, 20, error=error)
    assert (KIND in story.kinds()) is told


@pytest.mark.parametrize(("rest", "kind"), [("disk_wait", "disk-wait"), ("memory_wait", "memory-pressure")])
def test_a_worker_that_waits_itself_is_not_slow_at_its_work(rest: str, kind: str) -> None:
    assert starved(800, rest=rest).kinds() == [kind]


def test_strangers_on_the_workers_core_are_contention() -> None:
    story = starved(800, {"runqueue": 1900.0}).culprit(HOG, "stress", 1900, victim=WORKER)
    assert story.kinds()[0] == "cpu-contention"
    assert story.severity(KIND) in (None, Severity.LOW)


def test_a_process_of_another_job_is_a_peer_and_no_worker() -> None:
    waits = {"peer_wait": 800.0}
    story = job(waits, waits).process(HOG, "redis").thread(HOG, "redis", {}, rest="host_cpu")
    assert story.waker(HOG, "redis", "peer_wait", 800).kinds() == ["slow-peer"]


def test_waits_for_workers_that_the_gpu_hides_cost_nothing() -> None:
    story = job({"peer_wait": 600.0}).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {}, rest="host_cpu")
    assert story.waker(WORKER, "loader", "peer_wait", 600).kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert starved(600).abstains(KIND, source)


def own_work(host_ms: float, steps: int, gap_ms: float = 20.0) -> Story:
    """Works on after its launches, then waits for the GPU for what is left of the slice."""
    return job({"host_cpu": host_ms}, {"host_cpu": gap_ms}, steps=steps, slices=12)


def test_work_after_a_launch_counts_beyond_the_calls_and_the_wait_for_the_gpu() -> None:
    """20 ms of gaps, and 1860 ms less 2600 calls of 30 us; 60 ms of waiting for the GPU."""
    (finding,) = own_work(1880, steps=50).findings()
    assert finding.kind == KIND
    assert finding.effect.wall_share == pytest.approx((20 + 1860 - 78) / 2000, abs=0.001)


def test_work_after_a_launch_that_the_gpu_outlasts_costs_nothing() -> None:
    assert own_work(1700, steps=50).kinds() == []  # 240 ms of waiting for it


def test_the_work_of_making_the_calls_is_not_preparing_data() -> None:
    """25,000 launches in 1700 ms: what a framework takes for them."""
    assert KIND not in own_work(1700, steps=500).kinds()


def compiling(start_ns: int | None) -> Story:
    """40 s of compiling, with an iteration now and then, before the loop runs."""
    first = {"host_cpu": 1900.0, "cuda_cpu": 10.0}
    story = job(first, {"host_cpu": 1850.0}, when=range(20), steps=1, slices=60)
    job(story=story, when=range(20, 60))
    return story.process(JOB, "python3", start_ns=start_ns)


def test_compiling_the_model_is_not_preparing_data() -> None:
    assert compiling(start_ns=0).kinds() == []


def test_a_process_that_started_long_ago_does_not_compile() -> None:
    assert compiling(start_ns=-181 * SECOND).kinds() == [KIND]


def test_a_pause_for_metrics_between_epochs_is_not_a_lack_of_data() -> None:
    story = job(when=range(30), slices=60)
    job({"host_cpu": 1700.0}, {"host_cpu": 1600.0}, story=story, when=range(30, 31), steps=30)
    job(story=story, when=range(31, 60))
    assert story.kinds() == []


def test_a_wait_of_the_worker_nobody_is_known_to_have_ended_stays_unknown() -> None:
    assert KIND not in starved(1000, {"host_cpu": 20.0}, rest="lock_wait").kinds()
