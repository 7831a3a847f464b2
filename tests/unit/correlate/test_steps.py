"""Which call marks an iteration of the job's loop."""

from __future__ import annotations

import numpy as np

from ingero.correlate.steps import Loop, durations, find_loop
from ingero.model.facts import SLICE_NS
from tests.facts import JOB, Story, job


def loop(story: Story) -> Loop | None:
    timeline = story.timeline()
    return find_loop(story.facts, timeline.tables, JOB, dict.fromkeys(range(story.slices), SLICE_NS))


def calls(**per_slice: int) -> Story:
    story = Story(6).process(JOB, "x").thread(JOB, "x", {}, feeder=True)
    for name, count in per_slice.items():
        story.calls(name, count, 1)
    return story


def test_one_wait_for_the_gpu_per_iteration_marks_it() -> None:
    found = loop(job())
    assert found is not None
    assert found.name == "cudaStreamSynchronize"
    assert found.counts == dict.fromkeys(range(6), 200)
    assert found.step_ns(0, 2_000_000_000) == 10_000_000
    assert found.step_ns(99, 2_000_000_000) is None


def test_with_ten_waits_per_iteration_the_one_copy_marks_it() -> None:
    found = loop(calls(cudaStreamSynchronize=2000, cuMemcpyHtoDAsync_v2=200, cuLaunchKernel=10_000))
    assert found is not None
    assert found.name == "cuMemcpyHtoDAsync_v2"


def test_without_any_wait_the_launches_mark_it() -> None:
    found = loop(calls(cuLaunchKernel=500))
    assert found is not None
    assert found.name == "cuLaunchKernel"


def test_a_job_that_repeats_nothing_has_no_loop() -> None:
    assert loop(calls()) is None
    story = calls().calls("cuLaunchKernel", 2, 1, when=range(1))
    assert loop(story) is None


def test_a_call_made_now_and_then_does_not_mark_iterations() -> None:
    found = loop(calls(cudaStreamSynchronize=200).calls("cudaMalloc", 3, 1, when=range(2)))
    assert found is not None
    assert found.name == "cudaStreamSynchronize"


def test_loading_allocating_and_collecting_garbage_mark_nothing() -> None:
    quiet = calls(cuModuleLoadData=10, gc_collect=10, cuCtxCreate_v2=5, cudaFree=20, cudaMalloc=20)
    assert loop(quiet) is None


def test_a_log_line_that_allocates_every_tenth_iteration_does_not_mark_them() -> None:
    found = loop(calls(cudaStreamSynchronize=200, cudaMalloc=20))
    assert found is not None
    assert found.counts == dict.fromkeys(range(6), 200)


def test_an_operation_nobody_named_is_passed_over() -> None:
    story = calls(cuLaunchKernel=500)
    story.calls("cudaStreamSynchronize", 10, 1)
    del story.facts.ops[2]
    found = loop(story)
    assert found is not None
    assert found.name == "cuLaunchKernel"


def test_iterations_last_from_the_end_of_one_mark_to_the_end_of_the_next() -> None:
    marks = np.array([[100, 10], [200, 30], [400, 5]])
    assert durations(marks).tolist() == [[110, 120], [230, 175]]


def test_one_mark_or_none_makes_no_iteration() -> None:
    assert durations(np.zeros((0, 2), np.int64)).shape == (0, 2)
    assert durations(np.array([[5, 5]])).shape == (0, 2)


def test_a_call_watched_now_and_then_marks_nothing_while_one_always_watched_does() -> None:
    found = loop(calls(cudaStreamSynchronize=200).calls("cuLaunchKernel", 100, 1, error=20))
    assert found is not None
    assert found.name == "cudaStreamSynchronize"


def test_unless_it_is_surely_far_rarer_and_then_iterations_are_spread_evenly() -> None:
    story = calls(cudaStreamSynchronize=20_000)
    story.calls("cuMemcpyHtoDAsync_v2", 300, 1, when=range(0, 6, 2), error=100)
    story.calls("cuMemcpyHtoDAsync_v2", 100, 1, when=range(1, 6, 2), error=100)
    found = loop(story)
    assert found is not None
    assert found.name == "cuMemcpyHtoDAsync_v2"
    assert found.counts == dict.fromkeys(range(6), 200)
    assert not found.complete


def test_where_all_are_rough_estimates_iterations_are_spread_by_time() -> None:
    """The last slice is a fragment: as many in it as in the others would be a change of the job."""
    story = calls()
    for number, count in enumerate((500, 20, 300, 20, 300, 60)):
        story.calls("cuLaunchKernel", count, 1, when=[number], error=count)
    lengths = dict.fromkeys(range(5), SLICE_NS) | {5: SLICE_NS // 5}
    found = find_loop(story.facts, story.timeline().tables, JOB, lengths)
    assert found is not None
    assert list(found.counts.values()) == [231, 231, 231, 231, 231, 46]
    assert not found.complete
