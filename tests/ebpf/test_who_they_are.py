"""Names, command lines and ranks of processes, however short they live."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from ingero.discover.preattach import preattach_candidates
from ingero.model.window import Process
from ingero.scenarios import cuda
from tests.ebpf.tracing import WORKLOADS, Tracer, tracing, workload

COMMAND = f"{sys.executable} {WORKLOADS / 'ranked.py'} --calls 5"


def ranked(**more: str) -> dict[str, str]:
    """The environment of a rank."""
    return {**os.environ, **more, "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}


@pytest.fixture
def of_all() -> Iterator[Tracer]:
    """A trace of all processes, its probes on before any job begins."""
    with tracing() as tracer:
        with tracer._lock:
            stub = {"LD_LIBRARY_PATH": str(cuda.stub_dir())}
            tracer.agent._targets.attach_ahead(preattach_candidates(["true"], stub))
        yield tracer


def known(tracer: Tracer, pid: int) -> Process:
    """What was said of it last."""
    tracer.tick()
    return [each for window in tracer.windows for each in window.processes if each.pid == pid][-1]


def ranks(process: Process) -> tuple[int | None, int | None, int | None]:
    return process.rank, process.local_rank, process.world_size


def test_a_rank_that_ran_before_is_known_by_name_command_and_rank() -> None:
    with workload("ranked.py", "--calls", "5", env=ranked()) as job:
        job.go()
        with tracing() as tracer:
            found = known(tracer, job.pid)
    assert (found.comm, found.cmdline, *ranks(found)) == ("python", COMMAND, 3, 1, 8)


def test_a_rank_that_begins_later_is_known_too(of_all: Tracer) -> None:
    with workload("ranked.py", "--calls", "5", env=ranked()) as job:
        job.go()
        found = known(of_all, job.pid)
    assert (found.comm, found.cmdline, *ranks(found)) == ("python", COMMAND, 3, 1, 8)


def test_one_that_is_gone_before_anybody_looks_said_it_itself(of_all: Tracer) -> None:
    """While the agent attaches to a large library, processes come and go."""
    with of_all._lock, workload("ranked.py", "--calls", "5", env=ranked()) as job:
        job.go()
        assert job.end() == 0
    found = known(of_all, job.pid)
    assert (found.comm, found.cmdline, *ranks(found)) == ("python", COMMAND, 3, 1, 8)
    assert (found.parent_pid, found.uid, found.exit_code) == (os.getpid(), os.getuid(), 0)


@pytest.mark.parametrize("busy", [False, True], ids=["quick agent", "busy agent"])
def test_children_are_known_as_the_program_they_became(of_all: Tracer, busy: bool) -> None:
    with workload("ranked.py", "--calls", "5", env=ranked()) as job:
        if busy:
            with of_all._lock:
                (children,) = job.go()
        else:
            (children,) = job.go()
        forked, executed = (known(of_all, children[how]) for how in ("forked", "executed"))
    assert (forked.comm, forked.cmdline, *ranks(forked)) == ("python", COMMAND, 3, 1, 8)
    assert (executed.comm, executed.cmdline, *ranks(executed)) == ("sh", "/bin/sh -c : a child", 5, 1, 6)
    assert forked.parent_pid == executed.parent_pid == job.pid


def test_an_environment_of_many_pieces_is_read_whole(of_all: Tracer) -> None:
    """Where every service of a cluster has its variables in it."""
    large = {f"SERVICE_{number}_PORT": "x" * 90 for number in range(200)}
    with of_all._lock, workload("ranked.py", "--calls", "5", env=ranked(**large)) as job:
        job.go()
        assert job.end() == 0
    assert ranks(known(of_all, job.pid)) == (3, 1, 8)
