"""What a trace and its readers do when the machine, the disk or the terminal are against them.

The job always goes on, the message is one line, what is lost is counted.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ingero.scenarios import cuda
from tests.ebpf.real_runs import (
    INGERO,
    NOBODY,
    TRACEBACK,
    Place,
    finished,
    json_lines,
    left_alone,
    need_others,
    none_in_kernel,
    until,
    works,
)
from tests.ebpf.terminals import after_s, on_terminal, shown
from tests.ebpf.tracing import workload

pytestmark = pytest.mark.timeout(120)
STORED_S = 1.6  # what is seen goes to the disk once a second: that was tried, and failed
SHORT = ("trace", "--no-tui", "--no-record", "--duration", "300ms", "--pid", "1")


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A file system of its own that is quickly full."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "small", str(folder)], check=False)
    if made.returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def one_line_refusal(done: subprocess.CompletedProcess[str], said: str) -> None:
    """An error and a hint, nothing else."""
    lines = done.stderr.splitlines()
    assert done.returncode == 1, done.stderr
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"], done.stderr
    assert re.search(said, lines[0]), lines[0]


# --- killed ----------------------------------------------------------------------------


def test_a_killed_agent_leaves_the_job_alone_and_a_sound_recording_to_go_on_with(
    place: Place, steady: str
) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    print("seed", seed)
    with workload(steady) as job:
        job.start()
        for after_s in (moments.uniform(0.1, 0.9), moments.uniform(0, 0.5), moments.uniform(1.6, 2.4)):
            early = after_s < 0.9 and not place.db.exists()
            with place.tracing("--pid", str(job.pid), "--record-all", attached=not early) as run:
                time.sleep(after_s)
                objects = run.kernel_objects()
                killed_ns = time.time_ns()
                run.kill()
            until(partial(none_in_kernel, objects), "programs and links are gone")
            until(lambda: left_alone(job.pid), "the job runs its own code again")
            if place.db.exists() and after_s > 1.5:
                assert place.sound()
                last_ns = place.sql("SELECT MAX(last_ns) FROM recording")[0][0]
                assert killed_ns - last_ns < 2_500_000_000
                assert place.launches(job.pid) > 0
        with place.tracing("--pid", str(job.pid)) as run:
            works(job.pid)
            assert run.stop() == 0
        finished(job)
    assert place.sound()
    assert place.ended()[-1]
    assert not any(place.ended()[:-1])
    assert place.ingero("query", "-d", str(place.db)).returncode == 0


# --- the disk --------------------------------------------------------------------------


def test_a_full_disk_is_said_and_once_there_is_room_nothing_is_missing(place: Place, steady: str) -> None:
    with small_disk(place.folder / "small") as disk, workload(steady) as job:
        db = disk / "trace.db"
        with place.tracing("--pid", str(job.pid), "--record-all", "--json", "--db", str(db)) as run:
            fill(disk)
            job.start()
            until(lambda: "no space left for the database" in run.err, "it says that the disk is full")
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            made = finished(job)
            assert run.stop() == 0
        shutil.copy(db, place.db)
    assert place.launches(job.pid) == made["launches"]
    assert place.ended() == [True]
    assert place.sound()


def test_a_trace_on_a_disk_that_stays_full_ends_as_told_and_says_so(place: Place, steady: str) -> None:
    with small_disk(place.folder / "small") as disk, workload(steady) as job:
        db = disk / "trace.db"
        with place.tracing("--pid", str(job.pid), "--record-all", "--db", str(db)) as run:
            fill(disk)
            job.start()
            time.sleep(STORED_S)
            assert run.stop(signal.SIGTERM) == 0
        assert "no space left for the database" in run.out
        assert "store_backlog" in run.out  # what could not be stored is counted as lost
        assert "cuLaunchKernel" in run.out  # what was seen is shown all the same
        assert "Recorded in" not in run.out
        finished(job)
        with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_database_locked_by_somebody_for_seconds_costs_nothing(place: Place, steady: str) -> None:
    with workload(steady) as job, place.tracing("--pid", str(job.pid), "--record-all", "--json") as run:
        with contextlib.closing(sqlite3.connect(place.db, isolation_level=None)) as other:
            until(lambda: _locked(other), "we hold the lock")
            job.start()
            until(lambda: "locked by another program" in run.err, "it says that the database is locked")
            other.execute("ROLLBACK")
        made = finished(job)
        assert run.stop() == 0
    assert place.launches(job.pid) == made["launches"]
    lines = [
        line for line in json_lines(run.out) if line["pid"] == job.pid and line["op"] == "cuLaunchKernel"
    ]
    assert sum(line["weight"] for line in lines) >= made["launches"] - 1  # the stream went on meanwhile


def _locked(connection: sqlite3.Connection) -> bool:
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("BEGIN EXCLUSIVE")
    return connection.in_transaction


def test_a_recording_removed_while_it_is_made_is_said_and_the_trace_goes_on(
    place: Place, steady: str
) -> None:
    with workload(steady) as job, place.tracing("--pid", str(job.pid)) as run:
        job.start()
        for path in place.folder.glob("trace.db*"):
            path.unlink()
        time.sleep(STORED_S)
        assert run.stop() == 0
        finished(job)
    assert "removed or replaced" in run.out
    assert "cuLaunchKernel" in run.out


def somebody_elses(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE mine (x); PRAGMA user_version = 3")


def cut_short(path: Path) -> None:
    path.write_bytes((path.parent / "made.db").read_bytes()[:5000])


def newer(path: Path) -> None:
    shutil.copy(path.parent / "made.db", path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO migration (name, applied_ns) VALUES ('9999-from-the-future', 1)")
        connection.commit()


def locked_for_good(path: Path) -> None:
    """By a program that outlives the attempt."""
    shutil.copy(path.parent / "made.db", path)
    script = "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
    script += "c.execute('BEGIN EXCLUSIVE'); print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    HOLDERS.append(holder)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"


HOLDERS: list[subprocess.Popen[str]] = []

TROUBLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a directory": (lambda path: path.mkdir(), "not a plain file"),
    "no database": (lambda path: path.write_text("# my notes\n" * 100), "not an ingero database"),
    "somebody else's database": (somebody_elses, "not an ingero database"),
    "a newer one": (newer, "newer ingero.*9999-from-the-future"),
    "a link": (lambda path: path.symlink_to(path.parent / "made.db"), "symbolic link; as root it is not"),
    "a pipe": (lambda path: os.mkfifo(path), "not a plain file"),
    "locked": (locked_for_good, "locked by another program"),
    "cut short": (cut_short, "damaged|not an ingero database"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real, closed recording."""
    place = Place(tmp_path_factory.mktemp("made"))
    assert place.ingero("trace", "--db", str(place.db), "--", "true").returncode == 0
    return place.db


@pytest.mark.parametrize("what", TROUBLES)
def test_a_database_that_cannot_be_used_is_one_line_and_left_as_it_is(
    place: Place, made: Path, what: str
) -> None:
    shutil.copy(made, place.folder / "made.db")
    prepare, said = TROUBLES[what]
    prepare(place.db)
    before = place.db.read_bytes() if place.db.is_file() else b""
    try:
        one_line_refusal(
            place.ingero("trace", "--no-tui", "--duration", "300ms", "--db", str(place.db)), said
        )
        read = place.ingero("query", "-d", str(place.db))
        assert read.returncode == (0 if what in ("a link", "locked") else 1)
    finally:
        while HOLDERS:
            holder = HOLDERS.pop()
            holder.kill()
            holder.communicate()
    if place.db.is_file():
        assert place.db.read_bytes() == before


def test_a_place_that_cannot_be_written_is_one_line_and_a_missing_folder_is_made(place: Place) -> None:
    with small_disk(place.folder / "small") as disk:
        fill(disk)
        one_line_refusal(place.ingero(*_recording_into(disk / "x.db")), "[Nn]o space left")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        one_line_refusal(place.ingero(*_recording_into(disk / "y.db")), "[Rr]ead-only")
        one_line_refusal(place.ingero(*_recording_into(disk / "missing" / "y.db")), "[Rr]ead-only")
    inside = place.folder / "not" / "yet" / "there.db"
    assert place.ingero(*_recording_into(inside)).returncode == 0
    assert inside.stat().st_mode & 0o777 == 0o600
    assert inside.parent.stat().st_mode & 0o777 == 0o700


def _recording_into(path: Path) -> tuple[str, ...]:
    return ("trace", "--no-tui", "--duration", "300ms", "--pid", "1", "--db", str(path))


# --- without privileges ------------------------------------------------------------------


@pytest.fixture
def nobodys(place: Place) -> Place:
    """A home that another user can use; skipped where they cannot even run our Python."""
    need_others()
    for folder in (place.folder, *place.folder.parents[:2]):
        folder.chmod(0o755)
    home = place.folder / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    return Place(home)


def test_without_privileges_a_trace_names_what_is_missing_and_what_to_type(nobodys: Place) -> None:
    for words in (("trace",), ("trace", "--", "touch", str(nobodys.folder / "ran"))):
        done = nobodys.ingero(*words, before=NOBODY)
        one_line_refusal(done, "CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF missing")
        assert "sudo ingero trace" in done.stderr
    assert not (nobodys.folder / "ran").exists()


def test_without_privileges_everything_else_works(nobodys: Place, made: Path) -> None:
    mine = nobodys.folder / "mine.db"
    shutil.copy(made, mine)
    mine.chmod(0o644)
    nobodys.folder.chmod(0o555)  # its directory cannot be written either
    assert nobodys.ingero("query", "-d", str(mine), before=NOBODY).returncode == 0
    nobodys.folder.chmod(0o755)
    checked = nobodys.ingero("check", "--json", before=NOBODY)
    assert not json_lines(checked.stdout)[0]["ok"]
    demo = nobodys.ingero("demo", "--no-gpu", "--no-tui", "--speed", "200", before=NOBODY)
    assert demo.returncode == 0, demo.stderr
    own = nobodys.folder / ".ingero" / "demo.db"
    assert own.stat().st_uid == 65534
    assert nobodys.ingero("query", "-d", str(own), before=NOBODY).returncode == 0


def test_a_database_or_a_home_that_may_not_be_read_is_one_line(nobodys: Place, made: Path) -> None:
    secret = nobodys.folder / "secret.db"
    shutil.copy(made, secret)
    secret.chmod(0o600)
    done = nobodys.ingero("query", "-d", str(secret), before=NOBODY)
    one_line_refusal(done, "may not be read by this user")
    closed = nobodys.folder.parent / "closed"
    closed.mkdir(mode=0o700)
    for words in (("query",), ("demo", "--no-gpu", "--no-tui")):
        done = nobodys.ingero(*words, before=NOBODY, env={"HOME": str(closed)})
        assert (done.returncode, done.stderr.count("\n")) == (1, 2), done.stderr
    nameless = ("setpriv", "--reuid=61234", "--regid=61234", "--clear-groups", "--inh-caps=-all")
    one_line_refusal(nobodys.ingero("query", before=nameless, env={"HOME": None}), "no home directory")


# --- the terminal, or none ---------------------------------------------------------------


def shell(place: Place, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line as typed into bash, where $I is ingero."""
    done = subprocess.run(
        ["bash", "-c", script],
        env=place.environment(I=" ".join(INGERO), D=str(place.db), **environment),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert TRACEBACK not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done


def test_closed_streams_are_no_reason_to_stop(place: Place) -> None:
    trace = "$I trace --pid 1 --db $D --duration 300ms"
    assert shell(place, f"{trace} <&- | grep -q 'Recorded in'").returncode == 0
    assert shell(place, f"{trace} <&- >&- 2>&-").returncode == 0
    assert shell(place, "$I trace --no-record -- sh -c 'exit 7' <&- >&- 2>&-").returncode == 7
    assert shell(place, "$I query -d $D >&-").returncode == 0
    assert place.ended() == [True] * 2


def test_a_reader_that_goes_away_ends_it_quietly(place: Place, made: Path) -> None:
    for command in (
        f"$I query -d {made}",
        "$I trace --no-tui --no-record --pid 1 --duration 500ms",
        "$I demo --no-gpu --no-tui --speed 100",
    ):
        done = shell(place, f"{command} | head -1; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (0, ""), command


def test_a_full_disk_below_the_output_is_said_and_the_trace_goes_on(place: Place, steady: str) -> None:
    one_line_refusal(shell(place, "$I schema --json > /dev/full"), "cannot write the output: No space left")
    with workload(steady) as job:
        job.start()
        trace = f"$I trace --pid {job.pid} --db $D --duration 700ms"
        assert shell(place, f"{trace} --no-tui > /dev/full").returncode in (0, 1)
        assert place.launches(job.pid) > 0
        said = shell(place, f"{trace} --json > /dev/full")
        assert said.returncode == 1
        assert "the records can no longer be written: No space left on device" in said.stderr
    assert place.ended() == [True, True]


def test_a_terminal_without_unicode_gets_what_it_can_show(place: Place, made: Path) -> None:
    old = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for words in (("query", "-d", str(made)), SHORT, ("demo", "--no-gpu", "--no-tui", "--speed", "500")):
        done = place.ingero(*words, env=old)
        assert done.returncode in (0, 1), done.stderr
        assert done.stdout
    rows = place.ingero("query", "--json", "-d", str(made), "SELECT 'µ \U0001f600' AS x", env=old)
    assert json_lines(rows.stdout)[0]["rows"] == [{"x": "µ \U0001f600"}]


def printed(place: Place, *words: str, columns: int, **environment: str) -> str:
    with on_terminal(place, *words, columns=columns, **environment) as (process, ours):
        text = shown(ours)
        assert process.wait(20) == 0, text
    assert TRACEBACK not in text
    return text


def visible(text: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in text.replace("\r", "").split("\n")]


def test_a_narrow_terminal_gets_narrow_tables_and_no_color_none(place: Place, made: Path) -> None:
    assert "\x1b[3" not in printed(place, "query", "--no-pager", "-d", str(made), columns=40, NO_COLOR="1")
    printed(place, *SHORT, columns=40)
    printed(place, "demo", "--no-gpu", "--no-tui", "--speed", "500", "-d", str(place.db), columns=40)
    tables = printed(place, "query", "--no-pager", "-d", str(place.db), columns=40, NO_COLOR="1")
    assert max(len(line) for line in visible(tables) if "│" in line) <= 40


@pytest.mark.parametrize("how", ["q", "hangup"])
def test_the_live_view_of_a_narrow_terminal_ends_by_q_and_by_the_terminal_going_away(
    place: Place, steady: str, how: str
) -> None:
    with workload(steady) as job:
        job.start()
        words = ("trace", "--pid", str(job.pid), "--db", str(place.db))
        with on_terminal(place, *words, columns=40) as (process, ours):
            text = shown(ours, lambda text: "Quit" in text)
            text += shown(ours, after_s(1.5))
            if how == "q":
                os.write(ours, b"q")
                text += shown(ours)
            else:
                os.close(ours)
            assert process.wait(20) == 0, text
        finished(job)
    assert TRACEBACK not in text
    assert place.ended() == [True]


def test_few_descriptors_are_raised_as_far_as_allowed(place: Place, steady: str) -> None:
    with workload(steady) as job:
        job.start()
        done = shell(place, f"ulimit -S -n 50; $I trace --pid {job.pid} --db $D --duration 500ms")
        assert done.returncode == 0, done.stderr
        assert "cuLaunchKernel" in done.stdout
    inherited = shell(place, "ulimit -S -n 50; $I trace --no-record -- sh -c 'ulimit -n'")
    assert inherited.stdout == "50\n"
    assert cuda.stub_dir().is_dir()
