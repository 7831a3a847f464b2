"""A process whose pages never come holds up a reader, and nobody else.

The pages belong to a file system that never answers. Other jobs are counted exactly, the trace says
what it could not read, and it ends when it is told to. One that does not drain is ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ingero.agent.readers import Readers, UnreadError
from ingero.agent.reading import Reading
from ingero.discover import processes
from ingero.scenarios import cuda
from tests.ebpf.real_runs import Place, finished, left_alone, none_in_kernel, state_of, until
from tests.ebpf.tracing import WORKLOADS, workload

pytestmark = pytest.mark.timeout(120)

WATCHDOG_S = 2
LOOKS_S = 3  # the watchdog looks once a second: longer than nothing may have happened for
HELD_UP_S = 3  # a reader is held up for longer than the agent waits for one


class Frozen:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKLOADS / "hardship/frozen.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin
        assert self.process.stdout
        words = self.process.stdout.readline().split()
        assert words[:1] == ["ready"], "no file system of one's own can be mounted here"
        self.pid, self.address = int(words[1]), int(words[2])

    def map_library(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def frozen_file(*arguments: str) -> Iterator[Frozen]:
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse")
    made = Frozen("libcuda.so.1", *arguments)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    with frozen_file() as made:
        yield made


def test_a_page_that_never_comes_is_given_up_and_the_next_question_is_answered(frozen: Frozen) -> None:
    readers, drained = Readers(), []
    readers.idle = lambda: drained.append(1)
    try:
        with pytest.raises(UnreadError, match=f"process {frozen.pid} could not be read"):
            readers.ask(Reading.return_addresses, frozen.pid, frozen.address, frozen.address)
        assert drained  # while it waited
        held_up = readers._pid
        found = readers.ask(Reading.process, os.getpid())
        assert found
        assert found[0].pid == os.getpid()
        assert readers._pid != held_up
        with pytest.raises(UnreadError):  # at once: it is avoided for a while
            readers.ask(Reading.libraries_of, frozen.pid)
        assert readers.replaced == 2
        warnings: dict[str, str] = {}
        assert readers.losses(warnings) == {"unread": 2}
        assert str(frozen.pid) in warnings["unread"]
        frozen.end()  # and the file system with it: until then the kernel may hold the reader
        until(lambda: not Path(f"/proc/{held_up}").exists(), "a reader that was given up is gone")
    finally:
        readers.close()


def test_a_frozen_process_stops_neither_the_counting_of_others_nor_the_end(
    place: Place, steady: str, frozen: Frozen
) -> None:
    with workload(steady, "500") as job, place.tracing("--record-all", "--max-overhead", "off") as run:
        run.until_probed(job.pid)
        job.start()
        frozen.map_library()
        time.sleep(HELD_UP_S)
        made = finished(job)
        objects = run.kernel_objects()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(30) == 0
        until(lambda: none_in_kernel(objects), "programs and links are gone")
    assert place.launches(job.pid) == made["launches"]
    assert place.sql("SELECT SUM(count) > 0 FROM losses WHERE reason = 'unread'") == [(1,)]
    assert re.search("could not be read", run.err + run.out)
    assert place.sound()


REFUSED = "SELECT COUNT(*) > 0 FROM losses WHERE reason = 'library_refused'"


@pytest.mark.parametrize(
    ("more", "said"), [((), "another program serves this file"), (("--fuse",), "its pages did not come")]
)
def test_a_page_that_does_not_come_when_a_probe_is_put_there_holds_up_nobody(
    place: Place, steady: str, more: tuple[str, ...], said: str
) -> None:
    """The file can be read, and its functions be found; the kernel gets none of its pages. Would it ask for
    one while it puts probes on, no process of this machine could fork."""
    with (
        frozen_file(str(cuda.stub_dir() / "libcuda.so.1")) as frozen,
        workload(steady, "500") as job,
        place.tracing("--record-all", "--max-overhead", "off", *more) as run,
    ):
        run.until_probed(job.pid)
        job.start()
        frozen.map_library()
        until(lambda: place.sql(REFUSED) == [(1,)], "the file has no probes")
        subprocess.run(["true"], check=True, timeout=5)
        made = finished(job)
        objects = run.kernel_objects()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(30) == 0
        until(lambda: left_alone(job.pid), "the job has its own code back")
        frozen.end()
        until(lambda: none_in_kernel(objects), "programs and links are gone")
    assert said in run.out + run.err
    assert place.launches(job.pid) == made["launches"]
    assert place.sound()


@contextmanager
def frozen_cgroup(*pids: int) -> Iterator[None]:
    """The processes get no core, and are not stopped either."""
    root = next((Path(each.point) for each in processes.cgroup_mounts() if not each.controllers), None)
    if root is None:
        pytest.skip("no cgroup2 file system is mounted here")
    before = root / Path(f"/proc/{pids[0]}/cgroup").read_text().splitlines()[-1].partition("::")[2].lstrip(
        "/"
    )
    cgroup = root / f"ingero-frozen-{os.getpid()}"
    cgroup.mkdir()
    try:
        for pid in pids:
            (cgroup / "cgroup.procs").write_text(str(pid))
        (cgroup / "cgroup.freeze").write_text("1")
        yield
    finally:
        (cgroup / "cgroup.freeze").write_text("0")
        for pid in pids:
            with suppress(OSError):
                (before / "cgroup.procs").write_text(str(pid))
        until(lambda: not (cgroup / "cgroup.procs").read_text(), "nobody is in it any more")
        cgroup.rmdir()


def test_an_agent_that_does_not_drain_is_ended_and_its_probes_go_with_it(place: Place, steady: str) -> None:
    with workload(steady, "500") as job, place.tracing(INGERO_WATCHDOG_S=str(WATCHDOG_S)) as run:
        run.until_probed(job.pid)
        job.start()
        objects = run.kernel_objects()
        with frozen_cgroup(run.process.pid):
            assert run.process.wait(30) == -signal.SIGKILL
        until(lambda: none_in_kernel(objects), "programs and links are gone")
        until(lambda: left_alone(job.pid), "the job has its own code back")
        finished(job)
    assert "ended by its watchdog" in run.err
    assert place.sound()


def test_an_agent_that_was_paused_with_its_watchdog_goes_on(place: Place, steady: str) -> None:
    """As in a container that is paused."""
    with workload(steady, "500") as job, place.tracing(INGERO_WATCHDOG_S=str(WATCHDOG_S)) as run:
        run.until_probed(job.pid)
        job.start()
        agent = run.process.pid
        children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
        with frozen_cgroup(agent, *map(int, children)):
            finished(job)
            time.sleep(2 * WATCHDOG_S)
        time.sleep(LOOKS_S)
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(30) == 0, run.err
    assert place.sound()


def test_an_agent_stopped_by_job_control_is_left_alone_and_goes_on(place: Place, steady: str) -> None:
    with workload(steady, "500") as job, place.tracing(INGERO_WATCHDOG_S="0.5") as run:
        run.until_probed(job.pid)
        job.start()
        run.process.send_signal(signal.SIGSTOP)
        until(lambda: state_of(run.process.pid) == "T", "it is stopped")
        finished(job)
        time.sleep(LOOKS_S)
        run.process.send_signal(signal.SIGCONT)
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(30) == 0, run.err
    assert place.sound()


def test_the_watchdog_leaves_an_agent_alone_that_drains(place: Place) -> None:
    with place.tracing("--duration", "5s", INGERO_WATCHDOG_S=str(WATCHDOG_S)) as run:
        assert run.process.wait(30) == 0, run.err
