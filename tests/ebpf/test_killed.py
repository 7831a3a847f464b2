"""However the agent ends, running programs get their own code back.

The kernel writes breakpoints into every process that maps a probed library, and takes
them out again. Here it is killed while that is going on, which takes longer the more
processes there are; what counts is the code in their memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingero.scenarios import cuda
from tests.ebpf.real_runs import Place, Run, code_in_memory, finished, probed_pages, until
from tests.ebpf.tracing import PATIENCE, Workload, workload

pytestmark = pytest.mark.timeout(120)
PROCESSES = 20


@contextlib.contextmanager
def jobs(steady: str) -> Iterator[list[Workload]]:
    """Many that map the libraries; the first one works."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(workload(steady)) for _ in range(PROCESSES)]
        started[0].start()
        yield started


def until_code_changes(job: Workload, run: Run) -> None:
    """Return the moment the first breakpoint comes or goes."""
    before = code_in_memory(job.pid)
    deadline = time.monotonic() + 20 * PATIENCE
    while code_in_memory(job.pid) == before and run.process.poll() is None:
        assert time.monotonic() < deadline, "the code of the job was to change"


def nothing_left(started: list[Workload]) -> bool:
    return not any(probed_pages(job.pid) for job in started)


@pytest.mark.parametrize("when", ["attaching", "detaching"])
def test_killed_amid_its_probes_it_leaves_no_breakpoint_behind(place: Place, steady: str, when: str) -> None:
    with jobs(steady) as started:
        pids = ",".join(str(job.pid) for job in started)
        for _ in range(4):
            with place.tracing("--pid", pids, "--no-record", attached=when == "detaching") as run:
                if when == "detaching":
                    run.process.send_signal(signal.SIGINT)
                until_code_changes(started[0], run)
                run.kill()
            until(lambda: nothing_left(started), "every job runs its own code again")
        finished(started[0])


def test_killed_with_its_keepers_it_leaves_no_breakpoint_behind(place: Place, steady: str) -> None:
    with jobs(steady) as started:
        pids = ",".join(str(job.pid) for job in started)
        with place.tracing("--pid", pids, "--no-record") as run:
            for pid in (*run.keepers(), run.pid):
                os.kill(pid, signal.SIGKILL)
            run.kill()
        until(lambda: nothing_left(started), "every job runs its own code again")
        finished(started[0])


def test_a_keeper_holds_the_probes_and_nothing_else(place: Place, steady: str) -> None:
    with workload(steady) as job, place.tracing("--pid", str(job.pid)) as run:
        keepers = until(run.keepers, "there are keepers")
        for pid in keepers:
            files = {fd.name: str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
            assert files.pop("0").startswith("pipe:")
            assert (files.pop("1"), files.pop("2")) == ("/dev/null", "/dev/null")
            assert set(files.values()) == {"anon_inode:bpf_link"}
            assert os.getsid(pid) == pid  # Ctrl-C does not reach it
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(keepers[0], number)
        time.sleep(0.3)
        assert keepers[0] in run.keepers()
        assert run.stop() == 0
        until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in keepers), "keepers are gone")


def test_probes_whose_keeper_was_killed_are_put_on_again_and_it_is_said(place: Place, steady: str) -> None:
    with workload(steady) as job:
        job.start()
        with place.tracing("--pid", str(job.pid)) as run:
            run.until_probed(job.pid)
            before = run.keepers()
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            until(lambda: set(run.keepers()) - set(before), "there are new keepers")
            run.until_probed(job.pid)
            until(lambda: place.launches(job.pid), "its calls are recorded")
            assert run.stop() == 0
        assert f"probes on {cuda.stub_dir()}/libcuda.so.1 were off for a while" in run.out
        until(lambda: nothing_left([job]), "the job runs its own code again")
        finished(job)
    assert place.launches(job.pid) > 0
