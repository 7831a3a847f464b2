"""CUDA graph trouble: captured again and again, never launched, failed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ingero.model.facts import ErrorFact
from ingero.model.finding import Severity
from tests.facts import BY_NAME, JOB, MS, SECOND, Story, job

KIND = "graph-trouble"


def capturing(captures: int, launches: int, ms: float = 10, slices: int = 12) -> Story:
    story = job(slices=slices)
    if captures:
        story.calls("cudaStreamEndCapture", captures, ms / 2).calls("cudaGraphInstantiate", captures, ms / 2)
    return story.calls("cudaGraphLaunch", launches, 2) if launches else story


def test_a_capture_per_launch_is_found_and_counted() -> None:
    """The slice of the first launch is the start."""
    (finding,) = capturing(200, 200).findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.MEDIUM)
    assert "2200 times for 2200 launches" in finding.title
    assert "2200 captures, 2200 instantiations, 2200 launches" in finding.evidence[0].text


@pytest.mark.parametrize(("ms", "severity"), [(600, Severity.HIGH), (1200, Severity.CRITICAL)])
def test_much_time_in_making_graphs_makes_it_worse(ms: float, severity: Severity) -> None:
    assert capturing(200, 200, ms).severity(KIND) is severity


def test_a_graph_made_and_never_launched_is_low() -> None:
    (finding,) = capturing(1, 0, slices=30).findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.LOW)
    assert "never launched" in finding.title


def test_within_a_minute_a_graph_may_still_be_launched() -> None:
    assert capturing(1, 0, slices=29).kinds() == []


def test_a_failed_capture_is_told_with_its_call() -> None:
    story = job()
    story.facts.errors = [ErrorFact(JOB, JOB, "cudaStreamSynchronize", 900, 1, SECOND, SECOND, "node:4")]
    (finding,) = story.findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.MEDIUM)
    assert finding.evidence[0].event_ids == ["node:4"]


def test_failed_captures_are_told_from_the_first_to_the_last_however_they_come() -> None:
    story = job()
    story.facts.errors = [
        ErrorFact(JOB, JOB, "cudaMalloc", 900, 1, at * SECOND, at * SECOND, "node:4") for at in (3, 5, 1)
    ]
    (finding,) = story.findings()
    assert (finding.first_ns, finding.last_ns) == (SECOND, 5 * SECOND)


def test_graphs_captured_once_and_launched_often_are_fine() -> None:
    story = job(slices=12).calls("cudaGraphInstantiate", 8, 20, when=range(1))
    story.calls("cudaStreamEndCapture", 8, 20, when=range(1)).calls("cudaGraphLaunch", 200, 2)
    assert story.kinds() == []


def test_a_new_graph_now_and_then_is_fine() -> None:
    assert KIND not in capturing(10, 200).kinds()


def test_captures_of_the_start_are_the_start() -> None:
    story = job(slices=12).calls("cuModuleLoadData", 20, 100, when=range(2))
    story.calls("cudaGraphInstantiate", 50, 20, when=range(2))
    story.calls("cudaGraphLaunch", 200, 2, when=range(2, 12))
    assert story.kinds() == []


def test_a_healthy_run_is_quiet() -> None:
    assert capturing(0, 200).kinds() == []


def test_without_calls_it_says_so() -> None:
    assert capturing(200, 200).abstains(KIND, "calls")


def test_graphs_captured_at_the_start_of_a_server_are_not_captured_again_and_again() -> None:
    story = job(slices=12).calls("cudaStreamEndCapture", 67, 100, when=range(1))
    story.calls("cudaGraphInstantiate", 67, 100, when=range(1)).calls(
        "cudaGraphLaunch", 20, 1, when=range(3, 12)
    )
    assert story.kinds() == []


def test_graphs_of_a_server_that_nobody_asks_yet_are_no_trouble() -> None:
    story = job(slices=12).calls("cudaGraphInstantiate", 67, 100, when=range(1))
    assert story.kinds() == []


@pytest.mark.parametrize(("when", "said"), [(range(5, 6), False), (range(5, 7), True)])
def test_captures_in_one_slice_are_a_new_shape_and_not_again_and_again(when: range, said: bool) -> None:
    story = job(slices=12).calls("cudaGraphLaunch", 5, 1).calls("cudaGraphInstantiate", 40, 20, when=when)
    assert story.kinds() == ([KIND] if said else [])


def filling(ms: float, captures: int = 50, slices: int = 12) -> Story:
    """Each capture takes so long from its begin to its end: launches into the graph, and Python."""
    story = job({"host_cpu": 500.0, "cuda_cpu": 900.0}, slices=slices, rest="sleep")
    for name in ("cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"):
        story.calls(name, captures, 1)
    story.calls("cudaGraphLaunch", 100, 2).calls("cuLaunchKernel", 100_000, 500, caller=1)
    begins = np.arange(captures * slices, dtype=np.int64) * 2 * SECOND // captures
    marks = {"cudaStreamBeginCapture": begins, "cudaStreamEndCapture": begins + int(ms * MS)}

    def recorded(_pid: int, op: int) -> NDArray[np.int64]:
        starts = marks.get(story.facts.ops[op].name, begins[:0])
        return np.stack([starts, np.full_like(starts, 1000)], axis=1)

    story.facts.marks = recorded
    return story


def test_launches_into_a_graph_that_is_made_again_are_its_cost_and_no_launching() -> None:
    (finding,) = filling(ms=25).findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.CRITICAL)
    assert "13.8 s of 22 s in making graphs" in finding.evidence[0].text


def test_many_launches_beside_short_captures_are_still_launching() -> None:
    assert filling(ms=2).kinds() == ["launch-bound", KIND]


def test_a_capture_whose_begin_was_not_seen_is_not_guessed() -> None:
    story = filling(ms=25)
    seen = story.facts.marks
    begin = BY_NAME["cudaStreamBeginCapture"]
    story.facts.marks = lambda pid, op: seen(pid, op)[::2] if op == begin else seen(pid, op)
    assert story.severity(KIND) is Severity.HIGH
