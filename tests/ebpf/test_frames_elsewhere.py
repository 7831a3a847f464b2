"""Python lines of interpreters that are not where one expects them: within others, within containers."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from ingero.scenarios import cuda
from tests.ebpf.test_frames import (
    PROGRAM,
    SLOW,
    python_part,
    stacks_of,
    told_as_the_program_tells,
    until_readable,
)
from tests.ebpf.test_gil import pythons
from tests.ebpf.tracing import WORKLOADS, Tracer, workload
from tests.pythons import kind_of, with_a_lock

pytestmark = pytest.mark.timeout(120)
SUBINTERPRETERS = str(WORKLOADS / "subinterpreters.py")
CONTAINER = WORKLOADS / "hardship" / "container.sh"


# A lock each is for 3.12 already, but not yet for its ctypes.
KINDS = [(each, "legacy") for each in pythons()]
KINDS += [(each, "isolated") for each in pythons() if kind_of(each).minor >= 13]


def follows_subinterpreters(python: str) -> bool:
    """Before, a thread's key keeps leading to the interpreter it began in."""
    return kind_of(python).minor >= 12


@pytest.mark.parametrize(("python", "kind"), KINDS)
def test_calls_within_sub_interpreters_have_their_own_lines(tracer: Tracer, python: str, kind: str) -> None:
    with workload(python, SUBINTERPRETERS, str(cuda.stub_dir()), kind, "3") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        [said] = job.go()
        calls = stacks_of(tracer, job.pid, "cudaMalloc")
        assert job.end() == 0
    line = said["lines"]
    found = {int(row["bytes"]): python_part(stack) for row, stack in calls}
    assert set(found) - {2999} == {3000, 3001, 3002, 3003, 3101, 3102, 3103}
    call = ["allocate", SUBINTERPRETERS, line["allocate"]]
    for each in (3101, 3102, 3103):
        assert found[each][:2] == [call, ["in_its_thread", SUBINTERPRETERS, line["in_its_thread"]]]
    for each in (3001, 3002, 3003):
        if follows_subinterpreters(python):
            assert found[each][:2] == [call, ["inside", SUBINTERPRETERS, line["inside"]]]
        else:  # the line that runs the sub-interpreter
            assert [frame[0] for frame in found[each]][:1] == ["run"]
    assert found[3000][0] == call


def library_of(python: Path) -> str:
    """The libpython of an interpreter, if it has one."""
    found = sorted(python.parent.parent.glob("lib/libpython3.*.so.1.0"))
    return str(found[0]) if found and python.parent != Path("/usr/bin") else "none"


def host_pid_of(pid: int) -> int:
    """The only child, which has another number in its own namespace."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.parametrize("python", [each for each in pythons() if kind_of(each).executable == each])
@pytest.mark.parametrize("pids", ["same-pids", "own-pids"])
def test_an_interpreter_in_a_container_is_read_through_its_own_root(
    tracer: Tracer, tmp_path: Path, python: str, pids: str
) -> None:
    real = Path(python).resolve()
    home = {} if library_of(real) == "none" else {"PYTHONHOME": str(real.parent.parent)}
    own = ("--pid", "--fork", "--kill-child") if pids == "own-pids" else ()
    words = (str(CONTAINER), str(tmp_path), str(real), library_of(real), str(cuda.stub_dir()))
    command = ("unshare", "--mount", *own, "sh", *words, PROGRAM, "/app/cuda")
    with workload(*command, env={**SLOW, **home}) as job:
        if pids == "own-pids":
            assert job.pid == 1
            job.pid = host_pid_of(job.process.pid)
        assert str(Path(f"/proc/{job.pid}/exe").readlink()).startswith("/app/bin/")
        assert not Path("/app").exists()
        told_as_the_program_tells(tracer, job)


def test_who_has_the_lock_in_a_container_is_a_thread_of_the_host(tracer: Tracer) -> None:
    """The interpreter only knows the numbers of its own namespace."""
    python, program = with_a_lock()[-1], str(WORKLOADS / "two_threads.py")
    command = ("unshare", "--pid", "--fork", "--kill-child", python, program, str(cuda.stub_dir()), "gil")
    with workload(*command) as job:
        job.pid = host_pid_of(job.process.pid)
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        first = len(tracer.windows)
        job.start()
        threads: set[int] = set()
        for _ in range(5):
            time.sleep(0.1)
            threads |= {int(each.name) for each in Path(f"/proc/{job.pid}/task").iterdir()}
            tracer.tick()
        job.wait_done()
        tracer.tick()
    waits = np.concatenate([window.waits for window in tracer.windows[first:]])
    mine = waits[(waits["h"]["pid"] == job.pid) & (waits["holder_tid"] > 0)]
    assert len(mine) > 5
    assert set(mine["holder_tid"].tolist()) <= threads
