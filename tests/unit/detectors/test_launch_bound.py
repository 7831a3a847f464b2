"""Launch-bound: launching takes the time, and the GPU is hardly waited for."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import JOB, Story, job

KIND = "launch-bound"


def launching(
    launches: int = 100_000,
    gpu_wait_ms: float = 100,
    slices: int = 12,
    steps: int = 200,
    call_us: float = 9.0,
) -> Story:
    """All of a slice but `gpu_wait_ms` goes to launching."""
    story = Story(slices).process(JOB, "python3")
    busy = {"gpu_wait": gpu_wait_ms, "host_cpu": 900.0}
    story.thread(JOB, "python3", busy, {"host_cpu": 20.0}, feeder=True, rest="cuda_cpu")
    story.calls("cuLaunchKernel", launches, min(launches * call_us / 1000, 900), caller=1)
    return story.calls("cudaStreamSynchronize", steps, gpu_wait_ms, split={"gpu_wait": gpu_wait_ms})


def test_a_thread_that_only_launches_is_found_with_the_time_per_launch() -> None:
    (finding,) = launching().findings()
    assert finding.kind == KIND
    assert finding.severity is Severity.CRITICAL
    assert "18.8" in finding.title  # microseconds: 1880 ms for 100,000 launches
    assert "1,200,000 launches" in finding.causes[0].evidence[0].text


# A launch inside a graph takes 3.4 us: what is left of 1880 ms is what can be won.
@pytest.mark.parametrize(
    ("launches", "severity"),
    [
        (100_000, Severity.CRITICAL),
        (300_000, Severity.HIGH),
        (450_000, Severity.MEDIUM),
        (530_000, Severity.LOW),
        (545_000, None),
        (900_000, None),
    ],
)
def test_severity_follows_what_graphs_would_win(launches: int, severity: Severity | None) -> None:
    assert launching(launches).severity(KIND) is severity


def test_the_gain_leaves_what_launching_a_graph_costs() -> None:
    (finding,) = launching(400_000).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx((1880 - 1360) / 2000, abs=0.001)
    assert finding.effect.wall_share == pytest.approx(finding.gain.share)


def test_a_thread_that_then_waits_for_the_gpu_is_limited_by_the_gpu() -> None:
    assert launching(gpu_wait_ms=300).kinds() == []


def test_much_host_time_per_launch_is_the_programs_own_work() -> None:
    """1880 ms for 37,000 launches are more than 50 us each."""
    assert KIND not in launching(launches=37_000, steps=50).kinds()
    assert KIND in launching(launches=38_000, steps=50).kinds()


@pytest.mark.parametrize(("steps", "said"), [(250, True), (251, False)])
def test_an_iteration_of_less_than_400_launches_is_an_ordinary_small_model(steps: int, said: bool) -> None:
    assert (KIND in launching(steps=steps).kinds()) is said


@pytest.mark.parametrize(
    ("steps", "memsets", "off", "said"),
    [
        (
            20,
            0,
            0,
            True,
        ),  # 5,000 launches from wait to wait, and nothing that says they are several iterations
        (20, 260, 0, False),  # 385 launches to each
        (20, 240, 0, True),
        (20, 240, 20, False),  # as seen in looks: may be as many
        (20, 15, 0, True),  # rarer than the waits: no iteration
        (100, 260, 0, False),  # every few iterations, too
        (200, 200, 0, True),  # 500 launches to each
    ],
)
def test_launches_between_two_waits_may_be_of_several_iterations(
    steps: int, memsets: int, off: int, said: bool
) -> None:
    story = launching(steps=steps)
    if memsets:
        story.calls("cuMemsetD8Async", memsets, 1, error=off)
    assert (KIND in story.kinds()) is said


@pytest.mark.parametrize(
    ("graphs", "until", "said"), [(600, 6, True), (100, 6, False), (600, 12, False), (0, 6, False)]
)
def test_fewer_are_too_many_where_they_went_as_graphs_before(graphs: int, until: int, said: bool) -> None:
    """170 launches an iteration: too many only once the graphs stay away."""
    story = launching(steps=600)
    if graphs:
        story.calls("cudaGraphLaunch", graphs, 1, when=range(until))
    assert (KIND in story.kinds()) is said


@pytest.mark.parametrize(("call_us", "said"), [(14.0, True), (16.0, False)])
def test_launch_calls_that_last_wait_for_room_in_the_queue(call_us: float, said: bool) -> None:
    assert (KIND in launching(50_000, steps=100, call_us=call_us).kinds()) is said


def test_preparing_data_between_steps_is_not_launching() -> None:
    story = launching()
    story.rows["threads"] = []
    story.thread(
        JOB, "python3", {"gpu_wait": 50.0, "cuda_cpu": 500.0}, {"host_cpu": 1400.0}, feeder=True,
        rest="host_cpu",
    )  # fmt: skip
    assert story.kinds() == ["data-starvation"]


def test_a_healthy_run_is_quiet() -> None:
    assert job().kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert launching().abstains(KIND, source)


def test_launches_that_wait_because_the_queue_is_full_are_the_gpus_limit() -> None:
    """No synchronising call at all; each launch of a 38 us kernel spins until there is room."""
    story = Story(12).process(JOB, "python3")
    story.thread(JOB, "python3", {"host_cpu": 100.0}, feeder=True, rest="cuda_cpu")
    assert story.calls("cuLaunchKernel", 50_000, 1900, split={"cuda_cpu": 1900}).kinds() == []


def test_launches_of_all_threads_are_not_the_work_of_one() -> None:
    story = Story(12).process(JOB, "python3")
    for tid in range(JOB, JOB + 8):
        story.thread(
            JOB, "worker", {"cuda_cpu": 100.0, "gpu_wait": 100.0}, tid=tid, feeder=True, rest="host_cpu"
        )
    assert KIND not in story.calls("cuLaunchKernel", 8 * 8000, 800).kinds()


def estimated(*slices: tuple[int, int]) -> Story:
    """Launches of each slice and how far they may be off; 200 iterations in each."""
    story = launching(launches=0, slices=len(slices))
    for number, (count, error) in enumerate(slices):
        story.calls("cuLaunchKernel", count, 500, caller=1, when=[number], error=error)
    return story


def test_a_count_that_is_an_estimate_is_marked_as_one() -> None:
    (finding,) = estimated((92_000, 5_000), (96_000, 5_000)).findings()
    assert "~188,000 launches" in finding.causes[0].evidence[0].text


@pytest.mark.parametrize(
    ("slices", "found"),
    [
        ([(92_000, 10_000), (96_000, 8_000), (86_000, 9_000), (94_000, 9_000)], True),
        # the first second is known by one look: it says nothing, and takes nothing from the others
        ([(92_000, 80_000), (96_000, 8_000), (86_000, 5_000), (94_000, 9_000)], True),
        ([(84_000, 10_000), (82_000, 8_000), (83_000, 9_000), (84_000, 9_000)], False),  # may be below
        ([(92_000, 80_000), (96_000, 80_000)], False),
    ],
)
def test_launches_that_were_watched_in_part_are_judged_together(
    slices: list[tuple[int, int]], found: bool
) -> None:
    assert (KIND in estimated(*slices).kinds()) is found
