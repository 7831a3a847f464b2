"""The line that made a call, against what the program says of itself, on every CPython here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.attach import probes
from ingero.model.stack import ResolvedStack
from ingero.scenarios import cuda
from tests.ebpf.test_gil import pythons
from tests.ebpf.tracing import WORKLOADS, Tracer, Workload, workload
from tests.pythons import free_threaded

pytestmark = pytest.mark.timeout(180)
PROGRAM = str(WORKLOADS / "where_am_i.py")
FIRST = 100_000  # bytes; each place takes one more
SLOW = {**os.environ, "INGERO_STUB_ALLOC_US": "20000"}


def until_readable(tracer: Tracer, pid: int) -> None:
    tracer.until(lambda: tracer.agent._interpreters.version_of(pid) is not None)


def stacks_of(tracer: Tracer, pid: int, op: str) -> list[tuple[Any, ResolvedStack | None]]:
    """Each call with its stack, in order."""
    tracer.tick()
    known = {stack.hash: stack for window in tracer.windows for stack in window.stacks}
    found = []
    for window in tracer.windows:
        number, _ = probes.BY_NAME[op]
        mine = (window.calls["h"]["pid"] == pid) & (window.calls["op"] == number)
        rows, hashes = window.calls[mine], window.call_stacks[mine]
        found += [(row, known.get(int(number))) for row, number in zip(rows, hashes, strict=True)]
    return sorted(found, key=lambda each: int(each[0]["h"]["start_ns"]))


def python_part(stack: ResolvedStack | None) -> list[list[Any]]:
    assert stack is not None, "the call has no stack"
    return [[f.function, f.file, f.line] for f in stack.frames if f.kind == "python"]


def told_as_the_program_tells(tracer: Tracer, job: Workload, least_share: float = 0.6) -> None:
    """Let where_am_i.py go through its places and compare."""
    tracer.until_target(job.pid)
    until_readable(tracer, job.pid)
    *said, total = job.go()
    calls = stacks_of(tracer, job.pid, "cudaMalloc")
    missing = {FIRST + place for place in range(total["places"])} - {int(row["bytes"]) for row, _ in calls}
    assert (len(calls), missing) == (total["places"], set()), tracer.losses()
    found = {int(row["bytes"]): python_part(stack) for row, stack in calls}
    wrong = {
        each["bytes"]: (found[each["bytes"]], each["stack"])
        for each in said
        if found[each["bytes"]] != each["stack"]
    }
    assert not wrong
    assert len(said) > least_share * total["places"]  # some are over before the other thread looks


@pytest.mark.parametrize("python", pythons())
def test_every_place_is_told_as_the_program_tells_it(tracer: Tracer, python: str) -> None:
    with workload(python, PROGRAM, str(cuda.stub_dir()), env=SLOW) as job:
        told_as_the_program_tells(tracer, job)


def test_what_lies_in_no_code_makes_no_new_stack(tracer: Tracer, compiled: Callable[..., str]) -> None:
    """Without frame pointers a chain ends in garbage, each time another."""
    linked = ("-L", "STUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB")
    program = compiled("stray_frames.c", "-fomit-frame-pointer", "-mno-red-zone", *linked)
    with workload(program, "500") as job:
        tracer.until_target(job.pid)
        tracer.tick()
        job.go()
        calls = stacks_of(tracer, job.pid, "cuLaunchKernel")
    assert len(calls) == 500
    found = {tuple(frame.function for frame in stack.frames) for _, stack in calls if stack}
    assert len(found) < 5, found
    assert len({int(row["stack_id"]) for row, _ in calls}) < 5
    assert all("cudaLaunchKernel" in names for names in found), found


def test_calls_without_a_record_are_not_walked() -> None:
    """The kernel counts its walks."""
    from tests.ebpf.tracing import tracing  # an agent of its own: this one records little

    with tracing() as tracer, workload("busy.py", "--steps", "200", "--kernels", "50") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        tracer.tick()
        first = len(tracer.windows)
        job.go()
        tracer.tick()
        windows = tracer.windows[first:]
        records = sum(len(window.calls) for window in windows)
        samples = sum(int(window.samples["count"].sum()) for window in windows)
        waits = sum(len(window.waits) for window in windows)
        made = sum(int(window.operations["count"].sum()) for window in windows)
        assert made > 10_000
        assert 0 < sum(window.walks for window in windows) <= records + samples + waits
        assert records < made / 10


def test_samples_name_the_line_that_computes(tracer: Tracer) -> None:
    with workload("busy.py", "--steps", "30", "--host-us", "20000") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        job.go()
        tracer.tick()
        known = {stack.hash: stack for window in tracer.windows for stack in window.stacks}
        mine = np.concatenate([w.samples[w.samples["pid"] == job.pid] for w in tracer.windows])
    assert mine["count"].sum() > 5
    named = [known[int(row["stack_hash"])] for row in mine if int(row["stack_hash"]) in known]
    assert any(frame.file and frame.file.endswith("busy.py") for stack in named for frame in stack.frames)


@pytest.mark.parametrize("python", pythons())
def test_code_too_long_to_copy_has_its_name_and_file_though_it_is_freed(
    tracer: Tracer, python: str, tmp_path: Path
) -> None:
    """Top-level code of large modules is gone before it can be read: only the line may be unknown."""
    program = str(WORKLOADS / "large_modules.py")
    with workload(python, program, str(cuda.stub_dir()), str(tmp_path), "20") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        [said] = job.go()
        calls = stacks_of(tracer, job.pid, "cudaMalloc")
    inner = [python_part(stack)[1] for _, stack in calls]
    assert [file for _, file, _ in inner] == said["files"]
    assert {function for function, *_ in inner} == {"<module>"}
    last = len((tmp_path / "large_0.py").read_text().splitlines())
    assert {line for *_, line in inner} <= {last, None}  # never a wrong one
    assert "stack_unknown_frame" not in tracer.losses()


@pytest.mark.parametrize("python", pythons())
def test_texts_that_are_not_in_memory_are_read_all_the_same(
    tracer: Tracer, python: str, tmp_path: Path
) -> None:
    """As those of modules frozen into the interpreter: the kernel cannot wait for them, the agent can."""
    program = str(WORKLOADS / "absent_texts.py")
    with workload(python, program, str(cuda.stub_dir()), str(tmp_path)) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        before = dict(tracer.losses())
        [said] = job.go()
        version = tracer.agent._interpreters.version_of(job.pid)
        calls = stacks_of(tracer, job.pid, "cudaMalloc")
    functions = ["main.<locals>.without_lines", "main.<locals>.without_file"]
    inner = [python_part(stack)[0] for _, stack in calls]
    if version and version >= (3, 12):
        assert inner == [[n, said["file"], line] for n, line in zip(functions, said["lines"], strict=True)]
        assert tracer.losses() == before
    else:  # told apart by their content: what was not there then is another object's now
        assert {line for *_, line in inner} <= {*said["lines"], None}


def sites(calls: list[tuple[Any, ResolvedStack | None]]) -> set[tuple[int, int | None]]:
    """Bytes and innermost line."""
    return {(int(row["bytes"]), python_part(stack)[0][2] if stack else None) for row, stack in calls}


@pytest.mark.parametrize("python", pythons())
def test_children_are_read_as_their_parents_were(tracer: Tracer, python: str) -> None:
    """From their first call on, though nobody had time to look at them."""
    with workload(python, str(WORKLOADS / "forking.py"), str(cuda.stub_dir())) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        [said] = job.go()
        calls = [each for pid in set(said["pids"].values()) for each in stacks_of(tracer, pid, "cudaMalloc")]
    found = {str(row["bytes"]): (int(row["h"]["pid"]), python_part(stack)) for row, stack in calls}
    assert {size: pid for size, (pid, _) in found.items()} == said["pids"]
    assert {size: stack[0][2] for size, (_, stack) in found.items()} == said["lines"]
    assert all(stack[-1][0] in ("<module>", "Thread._bootstrap", "_bootstrap") for _, stack in found.values())


@pytest.mark.parametrize("python", free_threaded())
@pytest.mark.parametrize("setting", ["PYTHON_TLBC=0", "PYTHON_GIL=1"])
def test_a_free_threaded_python_that_does_not_run_as_such(tracer: Tracer, python: str, setting: str) -> None:
    """With one copy of the instructions for all threads, or with the lock."""
    name, _, value = setting.partition("=")
    with workload(python, PROGRAM, str(cuda.stub_dir()), env={**SLOW, name: value}) as job:
        told_as_the_program_tells(tracer, job)


@pytest.mark.parametrize("python", pythons())
def test_each_call_has_its_own_site_under_load(tracer: Tracer, python: str) -> None:
    """No stack mixes two moments: threads call from several lines in turn, as fast as they can."""
    with workload(python, str(WORKLOADS / "many_sites.py"), str(cuda.stub_dir()), "4", "1500") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        before = dict(tracer.losses())
        [said] = job.go()
        calls = stacks_of(tracer, job.pid, "cudaMalloc")
        within = stacks_of(tracer, job.pid, "cuMemAlloc_v2")
    lost = {reason: count - before.get(reason, 0) for reason, count in tracer.losses().items()}
    unknown = sum(stack is None or not python_part(stack) for _, stack in calls)
    assert unknown <= sum(count for reason, count in lost.items() if "stack" in reason)
    assert len(calls) == said["calls"] - lost.get("ring_call", 0)
    expected = {(int(size), line) for size, line in said["lines"].items()}
    assert sites(calls) == expected
    # The driver's calls are made within these: their Python frames are walked once for both.
    assert len(within) > 0.9 * len(calls)
    assert sites(within) == expected
