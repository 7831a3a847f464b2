"""Jobs that end, change or lie at the worst moment, and files made to hurt whoever reads them.

The agent neither crashes nor mixes things up, other jobs are traced as ever, and
nothing a process chose to be called reaches a terminal unchanged.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero.scenarios import cuda
from tests.ebpf.real_runs import (
    INGERO,
    Place,
    Run,
    finished,
    json_lines,
    none_in_kernel,
    state_of,
    until,
    works,
)
from tests.ebpf.tracing import PATIENCE, Workload, workload

pytestmark = pytest.mark.timeout(120)
NASTY = b"\x1b]0;owned\x07\x1b[31m\x9b2J\ny\xe2\x80\xaeX\xff "
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(scope="session")
def stuck(compiled: Callable[..., str]) -> str:
    return compiled("hardship/stuck.c", "-pthread", "-L", "STUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB")


def stub_copy(folder: Path) -> dict[str, str]:
    """The stub's libraries once more; a job started with this uses them."""
    shutil.copytree(cuda.stub_dir(), folder)
    return {**os.environ, "LD_LIBRARY_PATH": os.fsdecode(os.fsencode(folder))}


def ended_well(run: Run) -> None:
    objects = run.kernel_objects()
    assert run.stop() == 0, run.err
    until(lambda: none_in_kernel(objects), "programs and links are gone")


# --- ending within a call ----------------------------------------------------------------


def test_a_job_killed_within_a_call_is_seen_to_end_there(place: Place, stuck: str) -> None:
    with workload(stuck, "sync") as job, place.tracing("--pid", str(job.pid), "--record-all") as run:
        job.start()
        until(lambda: place.launches(job.pid), "what came before the call is recorded")
        job.process.kill()
        assert run.process.wait(30) == 0  # with the last of its targets
    assert place.launches(job.pid) == 1
    ended = place.sql(f"SELECT end_ns > start_ns FROM processes WHERE pid = {job.pid}")
    assert ended == [(1,)]
    assert "SELECT" not in run.err
    assert place.sound()


@pytest.mark.parametrize("who", ["exec-main", "exec-thread"])
def test_a_job_that_executes_another_program_within_a_call_goes_on_being_traced(
    place: Place, stuck: str, steady: str, who: str
) -> None:
    with workload(stuck, who, steady) as job, place.tracing("--pid", str(job.pid), "--record-all") as run:
        job.start()
        assert job.process.stdout is not None
        assert job.process.stdout.readline().split() == ["ready", str(job.pid)]
        run.until_probed(job.pid)
        time.sleep(0.2)
        job.start()
        works(job.pid)
        made = finished(job)
        ended_well(run)
    assert place.launches(job.pid) == 1 + made["launches"]
    assert place.sql(f"SELECT DISTINCT comm FROM processes WHERE pid = {job.pid}") == [("steady",)]


def test_calls_left_by_a_jump_do_not_spoil_the_later_ones(place: Place, stuck: str) -> None:
    with (
        workload(stuck, "jump", "5", "200") as job,
        place.tracing("--pid", str(job.pid), "--record-all") as run,
    ):
        (said,) = job.go()
        ended_well(run)
    assert said["failed"] == 0
    assert place.counts(job.pid)["cuLaunchKernel"] == said["launches"]


# --- coming and going ----------------------------------------------------------------------


def started_with_pid(pid: int, *words: str) -> Workload:
    """The next process gets the number that was freed."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not last.exists():
        pytest.skip("this kernel does not let PIDs be chosen")
    for _ in range(300):
        last.write_text(str(pid - 1))
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if process.pid == pid:
            assert process.stdout.readline().split() == ["ready", str(pid)]
            return Workload(process, pid)
        process.kill()
        process.communicate()
    pytest.skip("somebody else was quicker 300 times")


def test_a_reused_pid_is_another_process(place: Place, steady: str) -> None:
    with place.tracing("--record-all", "--user", "root") as run:
        with workload(steady) as first:
            run.until_probed(first.pid)
            first.start()
            works(first.pid)
            made = finished(first)
            assert first.end() == 0
        second = started_with_pid(first.pid, steady)
        try:
            time.sleep(0.5 * PATIENCE)  # it is found by what it maps
            second.start()
            works(second.pid)
            made_again = finished(second)
        finally:
            second.process.kill()
            second.process.communicate()
        time.sleep(0.2)
        ended_well(run)
    lives = place.sql(f"SELECT start_ns, end_ns FROM processes WHERE pid = {first.pid} ORDER BY start_ns")
    assert len(lives) == 2
    assert lives[0][1] <= lives[1][0] + 10_000_000  # /proc tells the start in clock ticks
    assert place.launches(first.pid) == made["launches"] + made_again["launches"]


def test_of_three_hundred_workers_no_call_is_missing_unsaid(place: Place, steady: str) -> None:
    exact = ("--max-overhead", "off")
    with workload(steady, "0", "300", "20") as job, place.tracing("--pid", str(job.pid), *exact) as run:
        (said,) = job.go()
        time.sleep(0.5)
        ended_well(run)
    lost = place.sql("SELECT SUM(count) FROM losses")[0][0] or 0
    seen = place.counts()["cuLaunchKernel"]
    assert said["launches"] == 6000
    assert seen == 6000 or seen < 6000 <= seen + lost  # not one is missing unsaid
    assert place.sql("SELECT COUNT(*) FROM processes WHERE end_ns IS NOT NULL")[0][0] >= 300


def test_three_hundred_processes_that_run_already_are_found_quickly(place: Place) -> None:
    script = "import os, sys, ctypes; ctypes.CDLL(sys.argv[1])\n"
    script += "for _ in range(300):\n if os.fork() == 0: break\n"
    script += "else: print('ready', os.getpid(), flush=True)\n"
    script += "sys.stdin.read()"
    words = (sys.executable, "-c", script, str(cuda.stub_dir() / "libcudart.so.12"))
    with workload(*words):
        before = time.monotonic()
        done = place.ingero("trace", "--no-tui", "--db", str(place.db), "--duration", "500ms")
        took_s = time.monotonic() - before
    assert done.returncode == 0, done.stderr
    assert len(place.sql("SELECT pid FROM processes WHERE comm LIKE 'python%'")) >= 301
    assert took_s < 20


def test_short_lives_in_a_row_are_all_counted(place: Place, steady: str) -> None:
    script = f"for i in $(seq 40); do {steady} 0 1 25 </dev/null >/dev/null; done"
    done = place.ingero(
        "trace", "--record-all", "--db", str(place.db), "--", "sh", "-c", script,
        env={"LD_LIBRARY_PATH": str(cuda.stub_dir())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert place.counts()["cuLaunchKernel"] == 1000
    assert place.sql("SELECT COUNT(DISTINCT pid) FROM cuda_events WHERE op = 'cuLaunchKernel'") == [(40,)]


def test_a_process_that_ends_while_we_attach_is_no_disaster(place: Place, steady: str) -> None:
    for _ in range(2):
        job = subprocess.Popen([steady, "0"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        flags = ("--no-tui", "--no-record", "--duration", "300ms", "--pid", str(job.pid))
        run = subprocess.Popen(
            [*INGERO, "trace", *flags],
            env=place.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(random.uniform(0.2, 0.9))
        job.kill()
        job.communicate()
        _, err = run.communicate(timeout=30)
        assert (run.returncode == 0 and err == "") or err.startswith(f"error: no process {job.pid}\n"), err


@pytest.mark.parametrize(
    ("pid", "said"),
    [
        ("2", r"process 2 \(\w+\) is a thread of the kernel"),
        ("4194302", "no process 4194302"),
        ("0", "not a process id"),
    ],
)
def test_a_pid_that_cannot_be_traced_is_one_line(place: Place, pid: str, said: str) -> None:
    done = place.ingero("trace", "--no-tui", "--no-record", "--duration", "1s", "--pid", pid)
    lines = done.stderr.splitlines()
    assert done.returncode in (1, 2)
    assert re.search(said, lines[0])
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]


def test_the_first_process_and_the_agent_itself_can_be_named(place: Place) -> None:
    flags = "trace --no-tui --no-record --duration 300ms --pid"
    script = f'exec "{sys.executable}" -m ingero {flags} 1,$$'
    done = subprocess.run(
        ["sh", "-c", script], env=place.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- names ---------------------------------------------------------------------------------


def test_nothing_a_process_is_called_reaches_the_reader_unchanged(place: Place, steady: str) -> None:
    folder = os.fsencode(place.folder) + b"/" + NASTY
    stub_copy(Path(os.fsdecode(folder)))
    program = folder + b"/\x1b[5m\x9b\nst"
    shutil.copy(os.fsencode(steady), program)
    words = [program, b"1000", NASTY * 200]
    environment = {**os.environb, b"LD_LIBRARY_PATH": folder, b"RANK": NASTY}
    job = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert job.stdout is not None
        pid = int(job.stdout.readline().split()[1])
        with place.tracing("--pid", str(pid), "--record-all") as run:
            Workload(job, pid).start()
            until(lambda: place.launches(pid), "its calls are recorded")
            checked = place.ingero("check")
            ended_well(run)
        streamed = place.ingero("trace", "--json", "--no-record", "--pid", str(pid), "--duration", "800ms")
    finally:
        job.kill()
        job.communicate()
    assert place.launches(pid) > 0
    statement = "SELECT p.comm, p.cmdline, e.comm FROM processes p, events e LIMIT 5"
    texts = [run.out, run.err, checked.stdout, streamed.stdout, streamed.stderr]
    texts += [
        place.ingero("query", "-d", str(place.db), *more).stdout for more in ((), ("--json",), (statement,))
    ]
    for text in texts:
        assert not UNSAFE.search(text), text
    assert "st" in run.out
    assert json_lines(streamed.stdout)


def test_the_names_of_commands_nodes_and_databases_may_be_anything(place: Place) -> None:
    odd = os.fsdecode(NASTY.replace(b"\n", b""))
    db = place.folder / f"{odd}.db"
    done = place.ingero("trace", "--node", "n1", "--db", str(db), "--", "sh", "-c", "exit 4", odd)
    assert done.returncode == 4, done.stderr
    assert not UNSAFE.search(done.stderr)
    asked = place.ingero("query", "-d", str(db))
    assert asked.returncode == 0, asked.stderr
    assert place.ingero("trace", "--no-record", "--node", odd, "--", "true").returncode == 2
    missing = place.ingero("trace", "--no-record", "--", odd)
    assert missing.returncode == 1
    assert not UNSAFE.search(missing.stderr)


# --- files ---------------------------------------------------------------------------------


def test_a_library_is_found_whatever_its_folder_is_called(place: Place, steady: str) -> None:
    environment = stub_copy(place.folder / "with space, two\nlines, \udcff, libcuda.so.1 (deleted)")
    with (
        workload(steady, env=environment) as job,
        place.tracing("--pid", str(job.pid), "--record-all") as run,
    ):
        job.start()
        works(job.pid)
        made = finished(job)
        ended_well(run)
    assert place.launches(job.pid) == made["launches"]


@pytest.mark.parametrize("way", ["deleted", "replaced"])
def test_a_library_that_changed_on_disk_is_probed_as_it_is_mapped(
    place: Place, steady: str, way: str
) -> None:
    environment = stub_copy(place.folder / "lib")
    with workload(steady, env=environment) as job:
        job.start()
        works(job.pid)
        for library in (place.folder / "lib").glob("lib*"):
            library.unlink()
            if way == "replaced":
                library.write_bytes(b"\x7fELF" + bytes(5000))
        with place.tracing("--pid", str(job.pid), "--record-all") as run:
            works(job.pid)
            ended_well(run)
        finished(job)
    assert place.launches(job.pid) > 0


def test_a_job_in_a_mount_namespace_of_its_own_is_traced(place: Place, steady: str) -> None:
    hidden = place.folder / "hidden"
    hidden.mkdir()
    script = (
        'mount -t tmpfs x "$1" && cp -r "$2/." "$1" && cp "$3" "$1/job" && LD_LIBRARY_PATH="$1" exec "$1/job"'
    )
    with workload(
        "unshare", "-m", "sh", "-c", script, "sh", str(hidden), str(cuda.stub_dir()), steady
    ) as job:
        assert not list(hidden.iterdir())
        with place.tracing("--pid", str(job.pid), "--record-all") as run:
            job.start()
            works(job.pid)
            made = finished(job)
            ended_well(run)
    assert place.launches(job.pid) == made["launches"]


def test_a_job_that_changed_its_root_is_traced(place: Place, steady: str) -> None:
    root = place.folder / "root"
    linked = subprocess.run(["ldd", steady], capture_output=True, text=True, check=True).stdout
    for path in {steady, *re.findall(r"(/\S+)", linked)}:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    folder = root / str(cuda.stub_dir()).lstrip("/")
    shutil.copytree(cuda.stub_dir(), folder, dirs_exist_ok=True)
    (folder / "libcudart.so").unlink(missing_ok=True)
    job_there = workload("chroot", str(root), steady)
    with job_there as job, place.tracing("--pid", str(job.pid), "--record-all") as run:
        job.start()
        works(job.pid)
        made = finished(job)
        ended_well(run)
    assert place.launches(job.pid) == made["launches"]


def hostile_files(folder: Path) -> list[Path]:
    """Files named like the driver that no reader should trust."""
    good = (cuda.stub_dir() / "libcuda.so.1").read_bytes()
    moments = random.Random(1)
    flipped = bytearray(good)
    for _ in range(200):
        flipped[moments.randrange(64, 4096)] ^= 1 << moments.randrange(8)
    contents = {
        "empty": b"",
        "text": b"#!/bin/sh\n" * 1000,
        "cut": good[: len(good) // 2],
        "header": good[:64],
        "flipped": bytes(flipped),
        "sections": good[:40] + struct.pack("<Q", 1 << 62) + good[48:],
    }
    files = []
    for name, content in contents.items():
        path = folder / name / "libcuda.so.1"
        path.parent.mkdir()
        path.write_bytes(content)
        files.append(path)
    return [*files, many_symbols(folder / "many" / "libcuda.so.1")]


def many_symbols(path: Path, count: int = 4_000_000) -> Path:
    """A well-formed file that defines one function four million times."""
    path.parent.mkdir()
    strings = b"\0cuLaunchKernel\0"
    code, table_at = 0x1000, 0x2000
    symbol = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, code, 16)
    strings_at = table_at + count * len(symbol)
    sections_at = strings_at + 4096
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 1, 64, 3, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, table_at, table_at, 0x1000)
    table = struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, table_at, count * len(symbol), 2, 0, 8, 24)
    names = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, strings_at, len(strings), 0, 0, 1, 0)
    with path.open("wb") as file:
        file.write(header + segment)
        file.seek(code)
        file.write(b"\x55\x48\x89\xe5\x5d\xc3" + b"\x90" * 26)
        file.seek(table_at)
        file.write(symbol * count)
        file.write(strings.ljust(4096, b"\0") + bytes(64) + table + names)
    return path


def test_files_made_to_hurt_the_reader_do_not_and_others_are_traced_as_ever(
    place: Place, steady: str
) -> None:
    files = hostile_files(place.folder)
    with workload("hardship/maps_files.py", *map(str, files)) as mapper, workload(steady) as job:
        pids = f"{mapper.pid},{job.pid}"
        before = time.monotonic()
        with place.tracing("--pid", pids, "--record-all") as run:
            attached_s = time.monotonic() - before
            job.start()
            mapper.start()
            for file in files:  # and once more under our feet
                os.truncate(file, 10)
            works(job.pid)
            made = finished(job)
            ended_well(run)
        assert mapper.process.poll() is None
    assert place.launches(job.pid) == made["launches"]
    assert "cannot attach" in run.out
    assert attached_s < 20


def test_a_job_stopped_within_a_call_can_be_left_and_continued(place: Place, steady: str) -> None:
    with workload(steady) as job:
        job.start()
        with place.tracing("--pid", str(job.pid)) as run:
            os.kill(job.pid, signal.SIGSTOP)
            until(lambda: state_of(job.pid) == "T", "it is stopped")
            ended_well(run)
        os.kill(job.pid, signal.SIGCONT)
        finished(job)


def test_a_process_that_maps_libraries_all_the_time_hides_nobody(
    place: Place, steady: str, compiled: Callable[..., str]
) -> None:
    mapper = compiled("hardship/maps_on.c")
    environment = stub_copy(place.folder / "lib")
    libraries = (str(place.folder / "lib" / "libcuda.so.1"), str(place.folder / "lib" / "libcudart.so.12"))
    other = stub_copy(place.folder / "other")
    with (
        workload(mapper, *libraries, env=environment),
        place.tracing("--record-all", "--user", "root") as run,
    ):
        with workload(steady, env=other) as job:
            run.until_probed(job.pid, place.folder / "other")
            job.start()
            works(job.pid)
            made = finished(job)
        ended_well(run)
    assert place.launches(job.pid) == made["launches"]


def test_a_killed_agent_leaves_its_command_running_untouched(place: Place, steady: str) -> None:
    with place.tracing("--", "sh", "-c", "echo up >&2; exec sleep 60", attached=False) as run:
        until(lambda: "up" in run.err, "the command runs")
        child = run.command()
        objects = run.kernel_objects()
        run.kill()
    try:
        until(lambda: none_in_kernel(objects), "programs and links are gone")
        assert "sleep" in Path(f"/proc/{child}/cmdline").read_text()
    finally:
        os.kill(child, signal.SIGKILL)
