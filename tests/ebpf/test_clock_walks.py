"""The clock strikes in an interrupt: the thread walks its stack itself, or little of it is walked there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ingero.scenarios import cuda
from tests.ebpf.test_frames import python_part, until_readable
from tests.ebpf.test_gil import pythons
from tests.ebpf.tracing import WORKLOADS, Tracer, tracing, workload

DEPTH = 400
CLOCK_WALK = 192  # frames, as in walk.bpf.h
CUT = "[deeper frames not read]"


@pytest.fixture(scope="module", params=["by itself", "in the interrupt"])
def clock_tracer(request: pytest.FixtureRequest, stub_of_the_shape: None) -> Iterator[tuple[Tracer, bool]]:
    """The tracer, and whether it walks in the interrupt, as on kernels before 6.18."""
    early = request.param == "in the interrupt"
    with pytest.MonkeyPatch.context() as patch:
        if early:
            patch.setenv("INGERO_WAIT_LINES", "early")
        with tracing() as running:
            yield running, early


@pytest.mark.parametrize("python", [pythons()[0], pythons()[-1]])
def test_a_deep_stack_is_whole_or_says_that_it_was_cut(
    clock_tracer: tuple[Tracer, bool], python: str
) -> None:
    tracer, early = clock_tracer
    program = str(WORKLOADS / "deep.py")
    with workload(python, program, str(cuda.stub_dir()), str(DEPTH), "5", "0.6") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        first = len(tracer.windows)
        job.go()
        tracer.tick()
    known = {stack.hash: stack for window in tracer.windows for stack in window.stacks}
    deep = []
    for window in tracer.windows[first:]:
        mine = window.samples[window.samples["pid"] == job.pid]
        assert int(mine["count"].sum()) < 1000, "each strike of the clock is counted once"
        for row in mine:
            stack = known.get(int(row["stack_hash"]))
            if stack and python_part(stack)[:1] and python_part(stack)[0][0] == "down":
                deep.append([frame.function for frame in stack.frames])
    assert deep, "nothing was sampled at that depth"
    for functions in deep:
        walked = sum(function == "down" for function in functions)
        if early:
            assert 16 <= walked <= CLOCK_WALK
            assert CUT in functions
        else:
            assert CUT not in functions
            assert functions[-1] == "<module>" or "<module>" in functions
