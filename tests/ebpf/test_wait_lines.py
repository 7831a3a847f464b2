"""Long waits carry the line they happened on, on kernels that can walk after the wait and on those before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ingero.attach.kernel import Detail
from ingero.model.layout import Bucket
from ingero.scenarios import cuda
from tests.ebpf.accounts import MS
from tests.ebpf.test_frames import python_part, until_readable
from tests.ebpf.test_gil import pythons
from tests.ebpf.tracing import WORKLOADS, Tracer, tracing, workload

pytestmark = pytest.mark.timeout(120)
PROGRAM = str(WORKLOADS / "waits" / "lines.py")
ROUNDS = 10
LOCKED_WALK = 6  # frames, as in walk.bpf.h


@pytest.fixture(scope="module", params=["after", "early"])
def waits_tracer(request: pytest.FixtureRequest, stub_of_the_shape: None) -> Iterator[tuple[Tracer, bool]]:
    """The tracer, and whether it walks before the wait, as on kernels before 6.18."""
    early = request.param == "early"
    with pytest.MonkeyPatch.context() as patch:
        if early:
            patch.setenv("INGERO_WAIT_LINES", "early")
        with tracing() as running:
            yield running, early


@pytest.mark.parametrize("python", pythons())
def test_long_waits_have_their_line(waits_tracer: tuple[Tracer, bool], python: str) -> None:
    tracer, early = waits_tracer
    with workload(python, PROGRAM, str(cuda.stub_dir()), str(ROUNDS)) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        first = len(tracer.windows)
        [said] = job.go()
        tracer.tick()
    windows = tracer.windows[first:]
    known = {stack.hash: stack for window in tracer.windows for stack in window.stacks}
    found: dict[int, list[list[list[object]]]] = {Bucket.SLEEP: [], Bucket.LOCK_WAIT: []}
    for window in windows:
        for row, number in zip(window.waits, window.wait_stacks.tolist(), strict=True):
            if row["h"]["tid"] == said["tid"] and row["duration_ns"] > 15 * MS and row["bucket"] in found:
                found[int(row["bucket"])].append(python_part(known[number]) if number else [])
    for bucket, function in ((Bucket.SLEEP, "nap"), (Bucket.LOCK_WAIT, "want")):
        stacks = found[bucket]
        assert len(stacks) >= ROUNDS - 2  # the machine may be too busy to let it wait for long
        lined = [stack for stack in stacks if stack]
        # Walked before, the first of a kind is not known to become long.
        assert len(lined) >= len(stacks) - (2 if early else 0)
        assert {tuple(stack[0]) for stack in lined} == {(function, PROGRAM, said["lines"][function])}
        depths = {len(stack) for stack in lined}
        whole = 3 if function == "nap" else 24
        assert depths == {min(whole, LOCKED_WALK) if early else whole}


def waits_of(tracer: Tracer, words: list[str], walk_share: float) -> list[tuple[Any, bool]]:
    """The waits of the job's thread, and whether each has its stack, while walking may take that share."""
    with workload(*words) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        tracer.agent._kernel.watch(0, Detail(walk_share=walk_share), blind=False)
        first = len(tracer.windows)
        [said] = job.go()
        tracer.tick()
        tracer.agent._kernel.watch(0, Detail(), blind=False)
    return [
        (row, bool(number))
        for window in tracer.windows[first:]
        for row, number in zip(window.waits, window.wait_stacks.tolist(), strict=True)
        if row["h"]["tid"] == said["tid"]
    ]


def test_where_stacks_are_saved_not_every_wait_is_walked(waits_tracer: tuple[Tracer, bool]) -> None:
    tracer, early = waits_tracer
    # Early, before it is known how long a wait will be, short ones are walked, too.
    share = 0.002 if early else 0.001
    found = waits_of(tracer, [str(WORKLOADS / "two_threads.py"), str(cuda.stub_dir()), "lock"], share)
    lined = [walked for row, walked in found if row["bucket"] == Bucket.LOCK_WAIT]
    assert len(lined) > 25  # of some 47 in its second
    assert 2 <= sum(lined) <= 18, sum(lined)


def test_a_wait_of_a_tenth_of_a_second_has_its_line_whatever_stacks_may_cost(
    waits_tracer: tuple[Tracer, bool],
) -> None:
    """Calls that come often have spent what walking may take: a checkpoint has its line all the same."""
    tracer, early = waits_tracer
    if early:
        pytest.skip("before the wait nobody knows that it will be long")
    found = waits_of(tracer, [sys.executable, PROGRAM, str(cuda.stub_dir()), str(ROUNDS), "0.1"], 1e-5)
    lined = [walked for row, walked in found if row["duration_ns"] > 90 * MS]
    assert len(lined) >= 2 * ROUNDS - 2
    assert all(lined)
