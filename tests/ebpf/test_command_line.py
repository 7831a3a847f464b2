"""`ingero trace` as users type it, on real probes, from attach to what is left afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingero.scenarios import cuda
from tests.ebpf.real_runs import (
    NOBODY,
    Place,
    finished,
    json_lines,
    left_alone,
    need_others,
    none_in_kernel,
    probed_pages,
    until,
    works,
)
from tests.ebpf.tracing import WORKLOADS, Workload, workload

CONTAINER = "ab12" * 16
ORPHAN_S = 0.3  # what somebody left running would have done its work by then
pytestmark = pytest.mark.timeout(120)


# --- a running job ---------------------------------------------------------------------


def test_records_that_nobody_reads_stop_neither_the_trace_nor_the_recording(
    place: Place, steady: str
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as unread, workload(steady) as job:
        job.start()
        done = place.ingero(
            "trace", "--pid", str(job.pid), "--json", "--record-all", "--duration", "3s",
            "--db", str(place.db),
            stdout=unread, stderr=subprocess.PIPE, capture_output=False,
        )  # fmt: skip
        finished(job)
    os.close(reading)
    assert done.returncode == 0, done.stderr
    assert "records were skipped" in done.stderr
    assert place.ended() == [True]
    seconds = place.sql("SELECT COUNT(DISTINCT bucket_start_ns / 1000000000) FROM operations")
    assert seconds[0][0] >= 2


def test_a_running_job_is_traced_for_a_while_and_the_recording_can_be_asked(
    place: Place, steady: str
) -> None:
    with workload(steady) as job:
        job.start()
        done = place.ingero(
            "trace", "--pid", str(job.pid), "--duration", "1200ms", "--no-tui", "--db", str(place.db)
        )
        made = finished(job)
    assert done.returncode == 0, done.stderr
    assert f"PID {job.pid} (steady)" in done.stdout
    assert "CUDA Driver API" in done.stdout
    assert place.ended() == [True]
    answer = json_lines(place.ingero("query", "-d", str(place.db), "--json").stdout)[0]
    by_op = {row["op"]: row for row in answer["operations"]}
    assert 0 < by_op["cuLaunchKernel"]["count"] < made["launches"]
    assert by_op["cuLaunchKernel"]["pids"] == [job.pid]
    sql = f"SELECT SUM(weight) AS n FROM cuda_events WHERE op = 'cuLaunchKernel' AND pid = {job.pid}"
    rows = json_lines(place.ingero("query", "-d", str(place.db), "--json", sql).stdout)[0]["rows"]
    assert rows[0]["n"] == by_op["cuLaunchKernel"]["count"]
    table = place.ingero("query", "-d", str(place.db)).stdout
    assert "cuLaunchKernel" in table


def test_json_is_lines_of_the_documented_columns_and_nothing_else(place: Place, steady: str) -> None:
    with workload(steady) as job:
        job.start()
        done = place.ingero(
            "trace",
            "--pid",
            str(job.pid),
            "--duration",
            "1200ms",
            "--json",
            "--record-all",
            "-d",
            str(place.db),
        )
        finished(job)
    assert done.returncode == 0, done.stderr
    schema = json_lines(place.ingero("schema", "--json").stdout)[0]["$defs"]["TraceLine"]
    lines = json_lines(done.stdout)
    calls = [line for line in lines if line["op"] == "cuLaunchKernel" and line["pid"] == job.pid]
    assert calls
    for line in lines:
        assert set(schema["required"]) <= set(line) <= set(schema["properties"])
    assert {line["pid"] for line in lines if line["source"] in (1, 4)} == {job.pid}
    assert "Probes:" in done.stderr


def test_a_process_that_starts_later_is_found(place: Place, steady: str) -> None:
    with place.tracing("--record-all") as run, workload(steady) as job:
        run.until_probed(job.pid)
        job.start()
        works(job.pid)
        made = finished(job)
        assert run.stop() == 0
    assert place.launches(job.pid) == made["launches"]
    assert f"PID {job.pid}" in run.out


# --- a command -------------------------------------------------------------------------


def stub_environment() -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(cuda.stub_dir())}


def traced_command(place: Place, *words: str, given: str = "\n\n") -> subprocess.CompletedProcess[str]:
    flags = ("trace", "--record-all", "--db", str(place.db), "--")
    return place.ingero(*flags, *words, stdin=None, input=given, env=stub_environment())


def test_a_command_is_traced_from_its_first_call_to_its_last(place: Place) -> None:
    done = traced_command(
        place, sys.executable, str(WORKLOADS / "busy.py"), "--steps", "30", "--kernels", "20"
    )
    assert done.returncode == 0, done.stderr
    counts = place.counts()
    assert counts["cuLaunchKernel"] == 600
    assert counts["cudaStreamSynchronize"] == 30
    assert counts["cuInit"] == counts["cudaMalloc"] == counts["cudaMallocHost"] == 1
    assert "cudaLaunchKernel" not in counts  # counted once, at the driver that was probed ahead
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ready", '{"steps_ns":', "done"]
    assert place.ended() == [True]
    assert place.sql("SELECT COUNT(*) FROM losses") == [(0,)]


def test_what_a_command_forks_is_traced_too(place: Place, steady: str) -> None:
    done = traced_command(place, steady, "0", "4", "250")
    assert done.returncode == 0, done.stderr
    assert place.counts()["cuLaunchKernel"] == 1000
    pids = place.sql("SELECT COUNT(DISTINCT pid) FROM cuda_events WHERE op = 'cuLaunchKernel'")
    assert pids == [(4,)]


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_a_commands_exit_code_is_passed_on(place: Place, script: str, code: int) -> None:
    assert place.ingero("trace", "--no-record", "--", "sh", "-c", script).returncode == code


def test_a_command_that_does_not_exist_is_said_and_nothing_is_recorded(place: Place) -> None:
    done = place.ingero("trace", "--db", str(place.db), "--", "no-such-command-here")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: cannot start no-such-command-here: no such command"
    assert not place.db.exists()


def test_a_command_is_not_run_when_the_trace_is_refused(place: Place) -> None:
    proof = place.folder / "ran"
    done = place.ingero("trace", "--db", "/proc/nowhere/x.db", "--", "touch", str(proof))
    assert done.returncode == 1
    assert "/proc/nowhere" in done.stderr
    time.sleep(ORPHAN_S)
    assert not proof.exists()


SHOW = """
import os, sys
print(sys.stdin.read().strip(), sys.argv[1:], os.read(40, 99).decode().strip())
print(sorted(int(name) for name in os.listdir("/proc/self/fd")))
"""


def test_a_command_gets_its_words_its_streams_and_its_descriptors_as_given(place: Place) -> None:
    given = place.folder / "given"
    given.write_text("from forty")
    words = ["a b", "", "$HOME", "*"]
    fds = [os.open(given, os.O_RDONLY)]
    fds += [os.dup2(fds[0], number) for number in range(20, 41)]
    try:
        done = place.ingero(
            "trace", "--no-record", "--", sys.executable, "-c", SHOW, *words,
            stdin=None, input="typed\n", pass_fds=[40],
        )  # fmt: skip
    finally:
        for fd in fds:
            os.close(fd)
    assert done.returncode == 0, done.stderr
    # 3 is the listing's own; nothing of ours is among them
    assert done.stdout.splitlines() == [f"typed {words} from forty", "[0, 1, 2, 3, 40]"]


def test_the_end_of_tracing_is_not_the_end_of_the_command(place: Place) -> None:
    before = time.monotonic()
    done = place.ingero(
        "trace", "--duration", "500ms", "--db", str(place.db), "--", "sh", "-c", "sleep 1.5; exit 5"
    )
    assert done.returncode == 5
    assert time.monotonic() - before >= 1.5
    started, ended = place.sql("SELECT started_ns, ended_ns FROM recording")[0]
    assert ended - started < 1_500_000_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_the_command_is_told_too_and_traced_to_its_end(place: Place, number: int) -> None:
    script = "trap 'kill $!; exit 3' TERM; sleep 60 & echo up >&2; wait $!"
    with place.tracing("--", "sh", "-c", script, attached=False) as run:
        until(lambda: "up" in run.err, "the command runs")
        assert run.stop(number) == 3
    assert place.ended() == [True]


def test_the_signal_that_ends_a_command_without_a_trap_is_its_exit_code(place: Place) -> None:
    with place.tracing("--", "sh", "-c", "echo up >&2; exec sleep 60", attached=False) as run:
        until(lambda: "up" in run.err, "the command runs")
        assert run.stop(signal.SIGTERM) == 143


# --- ending, and what is left -----------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_and_nothing_stays_behind(place: Place, steady: str, number: int) -> None:
    with workload(steady) as job:
        job.start()
        with place.tracing("--pid", str(job.pid)) as run:
            objects = run.kernel_objects()
            assert len(objects) > 20
            assert probed_pages(job.pid)
            works(job.pid)
            assert run.stop(number) == 0
        assert "Recorded in" in run.out
        until(lambda: none_in_kernel(objects), "programs and links are gone")
        until(lambda: left_alone(job.pid), "the job runs its own code again")
        finished(job)
    assert place.ended() == [True]
    assert place.sound()
    assert place.launches(job.pid) > 0


def test_a_second_trace_is_refused_with_the_pid_of_the_first(place: Place) -> None:
    with place.tracing("--no-record") as run:
        second = place.ingero("trace", "--no-tui", "--no-record", "--duration", "1s")
        assert second.returncode == 1
        assert second.stderr.splitlines()[0] == f"error: another trace runs on this host (PID {run.pid})"
        assert run.stop() == 0
    assert place.ingero("trace", "--no-tui", "--no-record", "--duration", "100ms").returncode == 0


# --- whom ------------------------------------------------------------------------------


@contextmanager
def job_of_nobody(steady: str) -> Iterator[Workload]:
    """Started by root from a file it may read, then another user's."""
    need_others()
    with workload(*NOBODY, steady) as job:
        yield job


@contextmanager
def container_cgroup() -> Iterator[Path]:
    """A cgroup named as docker names its containers'."""
    root = next(
        (p for p in map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")) if (p / "cgroup.procs").exists()),
        None,
    )
    if root is None:
        pytest.skip("no cgroup hierarchy to make a container in")
    made = [folder for folder in (root / "docker", root / "docker" / CONTAINER) if not folder.exists()]
    for folder in made:
        folder.mkdir()
    try:
        yield root / "docker" / CONTAINER
    finally:
        for pid in (root / "docker" / CONTAINER / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(pid)
        for folder in reversed(made):
            folder.rmdir()


def test_only_the_chosen_users_processes_are_traced(place: Place, steady: str) -> None:
    with (
        workload(steady) as other,
        job_of_nobody(steady) as job,
        place.tracing("--record-all", "--user", "nobody") as run,
    ):
        for each in (job, other):
            each.start()
        works(job.pid)
        made = finished(job)
        finished(other)
        assert run.stop() == 0
    assert place.launches(job.pid) == made["launches"]
    assert place.counts(other.pid) == {}
    assert place.sql(f"SELECT uid FROM processes WHERE pid = {job.pid}") == [(65534,)]


@pytest.mark.parametrize("way", ["short id", "cgroup"])
def test_only_the_chosen_container_is_traced(place: Place, steady: str, way: str) -> None:
    with container_cgroup() as cgroup, workload(steady) as other, workload(steady) as job:
        (cgroup / "cgroup.procs").write_text(str(job.pid))
        flags = {
            "short id": ("--container", CONTAINER[:12]),
            "cgroup": ("--cgroup", str(cgroup)),
        }[way]
        with place.tracing("--record-all", *flags) as run:
            for each in (job, other):
                each.start()
            works(job.pid)
            made = finished(job)
            finished(other)
            assert run.stop() == 0
        assert place.launches(job.pid) == made["launches"]
        assert place.counts(other.pid) == {}
        told = place.sql(f"SELECT container_id, runtime FROM containers WHERE container_id = '{CONTAINER}'")
        assert told == [(CONTAINER, "docker")]


# --- least privilege -------------------------------------------------------------------


def capabilities(status: str) -> int:
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapPrm:")), 16)


def test_the_agent_keeps_only_what_it_needs_and_its_command_loses_nothing(place: Place) -> None:
    from ingero.privileges import by_perf, wanted

    ours = capabilities(Path("/proc/self/status").read_text())
    with place.tracing("--", "sh", "-c", "cat /proc/self/status; exec sleep 30", attached=False) as run:
        until(lambda: "CapPrm:" in run.out, "the command ran")
        threads = [
            capabilities((task / "status").read_text())
            for task in Path(f"/proc/{run.process.pid}/task").iterdir()
        ]
        assert set(threads) == {wanted(ours, by_perf())}
        assert capabilities(run.out) == ours
