"""What must hold on every kernel: probes load, calls are seen, time adds up, frames are read, nothing stays.

INGERO_SHAPES names the attach shapes that this kernel is known to take: a shape that is
among them and is refused is a failure, one that is not is left out aloud.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ingero.attach.kernel import HOST_PLANS, KernelSide, Settings
from ingero.attach.shapes import SHAPES, describe_shapes
from ingero.scenarios import cuda
from tests.ebpf.accounts import stage
from tests.ebpf.few_functions import copy_stub
from tests.ebpf.real_runs import children, probed_pages, until
from tests.ebpf.test_calls import check_all
from tests.ebpf.test_frames import PROGRAM, SLOW, python_part, stacks_of, told_as_the_program_tells
from tests.ebpf.tracing import Tracer, tracing, workload
from tests.kernels.console import step

EXPECTED = os.environ.get("INGERO_SHAPES", "session multi perf").replace(",", " ").split()
FRAMES = platform.machine() == "x86_64"  # elsewhere the agent does not find thread states
NAMES = [kind.name for kind in SHAPES]
# All that the jobs of these tests call. Under the perf shape nothing else is probed, since kernels take long
# to let go of each.
CALLED = """
cudaMalloc cuInit cuDeviceGet cuDevicePrimaryCtxRetain cuCtxSetCurrent cuCtxSynchronize
cuMemAlloc_v2 cuMemFree_v2 cuModuleLoadData cuModuleGetFunction cuLaunchKernel
cuStreamSynchronize cuMemcpyHtoD_v2 cuMemcpyDtoH_v2
"""
# Tracepoints that not every kernel has, and nothing else, may be missing.
MAY_BE_ABSENT = {"xid"}


@pytest.fixture(scope="module", params=NAMES)
def tracer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracer]:
    if request.param not in EXPECTED:
        pytest.skip(f"this kernel does not have the {request.param} shape")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "perf":
            folder = tmp_path_factory.mktemp("few") / "lib"
            patch.setenv(
                "INGERO_STUB_DIR", str(copy_stub(cuda.stub_dir(), folder, frozenset(CALLED.split())))
            )
        patch.setenv("INGERO_ATTACH", request.param)
        # On arm64 compilers begin most functions with what the kernel must single-step.
        with tracing(record_all=True, costly=True) as running:
            yield running


def test_the_shapes_are_those_this_kernel_is_known_to_take(
    record_property: Callable[[str, object], None],
) -> None:
    offered = {check.name.split()[-1]: check for check in describe_shapes()}
    record_property("release", platform.release())
    record_property("machine", platform.machine())
    record_property("shapes", [name for name in NAMES if offered[name].status == "ok"])
    assert {
        name: each.value for name, each in offered.items() if each.status != "ok" and name in EXPECTED
    } == {}


@pytest.mark.skipif("INGERO_PREEMPT" not in os.environ, reason="nobody asked for a way to preempt")
def test_the_kernel_preempts_as_it_was_told() -> None:
    """The way it has chosen is in brackets."""
    assert f"({os.environ['INGERO_PREEMPT']})" in Path("/sys/kernel/debug/sched/preempt").read_text()


def test_every_object_loads_and_attaches(record_property: Callable[[str, object], None]) -> None:
    kernel = KernelSide(Settings())
    try:
        kernel.load("call", frozenset(f"call_{end}" for end in ("session", "multi_enter", "multi_return")))
        kernel.configure()
        kernel.attach_host()
        kernel.attach_clock()
        refused = {name: state.refused for name, state in kernel.sources.items() if state.refused}
        record_property("absent", sorted(set(refused) & MAY_BE_ABSENT))
        assert {name: why for name, why in refused.items() if name not in MAY_BE_ABSENT} == {}
        assert {plan.source for plan in HOST_PLANS} - MAY_BE_ABSENT <= {
            name for name, state in kernel.sources.items() if state.attached
        }
    finally:
        kernel.close()


def test_23_calls_give_23_records_with_arguments(tracer: Tracer) -> None:
    with workload("calls23.py", "--layer", "driver") as job:
        tracer.until_target(job.pid)
        said = job.go()
        assert len(said) == 23
        check_all(tracer.calls(job.pid), said)


def test_accounted_time_adds_up_to_the_wall_time(tracer: Tracer) -> None:
    with stage(tracer) as acting:
        played = acting.play("doze_on", "0", "40")
    last = played.totals[-1]
    lived_ns = int(last["now_ns"]) - int(last["h"]["start_ns"])
    assert int(last["acc"].sum()) == lived_ns == played.wall_ns
    assert lived_ns >= played.said["end_ns"] - played.said["start_ns"]
    assert np.count_nonzero(last["acc"]) > 1  # on a core and waiting


@pytest.mark.skipif(not FRAMES, reason="frames are read on x86-64 only")
def test_python_frames_are_those_the_program_tells(tracer: Tracer) -> None:
    with workload(sys.executable, PROGRAM, str(cuda.stub_dir()), env={**os.environ, **SLOW}) as job:
        told_as_the_program_tells(tracer, job, least_share=0.1)  # emulated cores take long turns


@pytest.mark.skipif(FRAMES, reason="frames are read here")
def test_frames_that_cannot_be_read_are_left_out_aloud(
    tracer: Tracer, record_property: Callable[[str, object], None]
) -> None:
    record_property("not_there", ["Python frames"])
    with workload(sys.executable, PROGRAM, str(cuda.stub_dir()), env={**os.environ, **SLOW}) as job:
        tracer.until_target(job.pid)
        tracer.until(lambda: (frames := tracer.agent._interpreters._frames_of(job.pid)) and frames.why)
        job.go()
        stacks = [stack for _, stack in stacks_of(tracer, job.pid, "cudaMalloc")]
        assert stacks
        assert not [stack for stack in stacks if stack and python_part(stack)]


def test_after_the_end_nothing_is_left(tracer: Tracer) -> None:
    """The last of each shape: it ends its tracer."""
    with workload("calls23.py", "--layer", "driver") as job:
        tracer.until_target(job.pid)
        until(lambda: probed_pages(job.pid), "the probes are on")
        step("the agent ends")
        tracer.close()
        until(lambda: not probed_pages(job.pid), "its code is its own again", 120)
        job.go()
    step("its code is its own again, the kernel lets go of what was attached")
    until(lambda: not keepers_left(), "no keeper is left", 120)


def keepers_left() -> list[int]:
    """An agent that ends leaves those of the perf shape to whoever comes after it: here to us."""
    for pid in children(os.getpid()):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return children(os.getpid())
