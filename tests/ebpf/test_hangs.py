"""A collective that hangs is told, whatever ends first: the job, the trace, or our patience.

Three ranks; one makes no collective before somebody writes to it, the others wait for it in
cudaStreamSynchronize. Trace and job are real, the GPU and NCCL are the stub.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.ebpf.real_runs import Place, Run, json_lines, stub, until
from tests.ebpf.tracing import Workload, workload

pytestmark = pytest.mark.timeout(240)
ALL_FUNCTIONS = True

RANKS, ABSENT = 3, 2
HUNG = ("nccl_ranks.py", "--ranks", str(RANKS), "--absent-rank", str(ABSENT))
LONG_S = 12  # more than a rank may begin late
BEFORE_S = 1  # it hung for so long before the trace
HOLDS = """
import os, sys
from ingero.scenarios import cuda
libraries = cuda.stub_runtime(), cuda.stub_nccl()
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
"""
SYNC = "cudaStreamSynchronize"


def explained(place: Place, *words: str) -> dict[str, Any]:
    done = place.ingero("explain", "-d", str(place.db), "--json", *words)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json_lines(done.stdout)[0]
    return answer


def hangs(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in answer["findings"] if each["kind"] == "nccl-hang"]


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def hung_job() -> Iterator[tuple[Workload, list[int]]]:
    """Ranks that wait for one that does not come; by rank."""
    with workload(*HUNG, env={**os.environ, **stub()}) as job:
        job.start()
        ranks = until(lambda: len(found := children(job.pid)) == RANKS and found, "all ranks were there")
        try:
            yield job, ranks
        finally:
            for pid in ranks:
                with suppress(ProcessLookupError):  # a test may have done so
                    os.kill(pid, signal.SIGKILL)


def in_flight_for_s(place: Place) -> float:
    """How long all that wait have been seen to."""
    rows = place.sql(f"SELECT MIN(duration_ns), COUNT(*) FROM unfinished_calls WHERE op = '{SYNC}'")
    shortest, count = rows[0]
    return float(shortest) / 1e9 if count == RANKS - 1 else 0.0


@contextmanager
def traced_from_its_start(place: Place) -> Iterator[tuple[Run, list[int]]]:
    """A hung job no call of which was missed: another process had the libraries probed before."""
    with (
        workload(sys.executable, "-c", HOLDS, env={**os.environ, **stub()}) as holder,
        place.tracing() as run,
    ):
        run.until_probed(holder.pid)
        with hung_job() as (_, ranks):
            until(lambda: in_flight_for_s(place) >= LONG_S, "it hung", 60)
            yield run, ranks


def test_a_hang_is_still_told_when_the_job_was_killed(place: Place) -> None:
    with traced_from_its_start(place) as (run, ranks):
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        until(
            lambda: place.sql("SELECT COUNT(*) FROM unfinished_calls WHERE died")[0][0] == RANKS - 1,
            "it died",
        )
        run.stop()
    (hang,) = hangs(explained(place))
    assert hang["severity"] == "CRITICAL"
    assert f"rank {ABSENT} (pid {ranks[ABSENT]}) never joined" in hang["title"]
    rows = place.sql("SELECT died, entered, duration_ns FROM unfinished_calls")
    assert len(rows) == RANKS - 1
    assert all(died and entered and ns >= LONG_S * 1e9 for died, entered, ns in rows)
    assert place.sql("SELECT severity FROM findings WHERE kind = 'nccl-hang'") == [("CRITICAL",)]


def test_a_hang_is_told_when_the_trace_ends_first(place: Place) -> None:
    with traced_from_its_start(place) as (run, ranks):
        run.stop()
    (hang,) = hangs(explained(place))
    assert f"rank {ABSENT} (pid {ranks[ABSENT]}) never joined" in hang["title"]
    assert set(place.sql("SELECT died, entered FROM unfinished_calls")) == {(0, 1)}


@pytest.fixture(scope="module")
def hung_before(stub_of_the_shape: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, list[int]]:
    """The recording of a job that hung already, and its ranks."""
    place = Place(tmp_path_factory.mktemp("hung"))
    with hung_job() as (job, ranks):
        time.sleep(BEFORE_S)
        words = ("--db", str(place.db), "--duration", f"{LONG_S + 2}s", "--pid", str(job.pid))
        done = place.ingero("trace", "--no-tui", *words)
        assert done.returncode == 0, done.stderr
    return place, ranks


def test_a_job_that_hung_before_the_trace_is_seen_and_told(hung_before: tuple[Place, list[int]]) -> None:
    place, ranks = hung_before
    answer = explained(place)
    (hang,) = hangs(answer)
    assert hang["severity"] == "CRITICAL"
    assert hang["confidence"] < 0.8
    assert [who["pid"] for who in hang["causes"][0]["who"]] == [ranks[ABSENT]]
    assert any("not known" in each["text"] for each in hang["causes"][0]["evidence"])
    waiting = {each["pid"]: each for each in answer["processes"] if each["threads_ns"]}
    assert set(waiting) == {pid for rank, pid in enumerate(ranks) if rank != ABSENT}
    for each in waiting.values():
        assert each["time"]["gpu_wait"] + each["time"]["runqueue"] == each["threads_ns"]
    assert "No CUDA process" not in place.ingero("explain", "-d", str(place.db)).stdout


def test_a_second_trace_leaves_the_hang_of_the_first_as_it_was(
    place: Place, hung_before: tuple[Place, list[int]]
) -> None:
    shutil.copy(hung_before[0].db, place.db)
    before = place.sql("SELECT * FROM unfinished_calls")
    place.ingero("trace", "--db", str(place.db), "--", "sleep", "2")
    assert place.sql("SELECT * FROM unfinished_calls") == before != []
    (hang,) = hangs(explained(place, "--since", "10m"))
    assert hang["severity"] == "CRITICAL"


def test_a_long_wait_of_a_healthy_job_is_no_hang(place: Place) -> None:
    """One process in one long wait when the trace ends: shown as it is, and no finding."""
    with workload("devices.py", "--early", "--seconds", "60", env={**os.environ, **stub()}) as job:
        place.ingero(
            "trace", "--no-tui", "--db", str(place.db), "--duration", f"{LONG_S + 2}s", "--pid", str(job.pid)
        )
    answer = explained(place)
    assert answer["findings"] == []
    (process,) = (each for each in answer["processes"] if each["pid"] == job.pid)
    assert process["threads_ns"] > 0
    assert "cudaDeviceSynchronize, not returned" in process["worst_stall"]["text"]
