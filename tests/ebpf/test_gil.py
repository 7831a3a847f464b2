"""Waits for the interpreter's lock are told from waits for other locks, on every CPython here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.model.layout import Bucket, GilMark
from ingero.scenarios import cuda
from tests.ebpf.accounts import MS
from tests.ebpf.real_runs import Place
from tests.ebpf.tracing import WORKLOADS, Tracer, workload
from tests.pythons import SUPPORTED, free_threaded, kind_of, with_a_lock

PROGRAM = str(WORKLOADS / "two_threads.py")
Rows = np.ndarray[Any, Any]


def pythons() -> list[str]:
    """Of distributions, built by their users, or named to the tests."""
    return SUPPORTED


def works(tracer: Tracer, python: str, kind: str) -> tuple[Rows, Rows]:
    """The feeder's lock waits and its accounted time."""
    with workload(python, PROGRAM, str(cuda.stub_dir()), kind) as job:
        tracer.until_target(job.pid)
        first = len(tracer.windows)
        tracer.tick()
        [said] = job.go()
        tracer.tick()
        windows = tracer.windows[first:]
        waits = np.concatenate([window.waits for window in windows])
        threads = np.concatenate([window.threads for window in windows])
    assert said["rounds"] > 10
    mine = (waits["h"]["tid"] == said["tid"]) & (waits["bucket"] == Bucket.LOCK_WAIT)
    return waits[mine], threads[(threads["tid"] == said["tid"]) & threads["feeder"]]


def blocked_ns(waits: Rows) -> int:
    return int(waits["duration_ns"].sum()) - int(waits["runqueue_ns"].sum())


@pytest.mark.parametrize("python", with_a_lock())
def test_a_thread_that_wants_the_interpreter_waits_for_the_gil(tracer: Tracer, python: str) -> None:
    waits, threads = works(tracer, python, "gil")
    assert len(waits) > 10
    # Other locks of the interpreter are rare and short: nearly all of it is the one.
    gil = waits[waits["gil"] == GilMark.GIL_YES]
    assert blocked_ns(gil) > 0.95 * blocked_ns(waits)
    assert set(waits["gil"].tolist()) <= {GilMark.GIL_YES, GilMark.GIL_NO}
    assert int(threads["gil_ns"].sum()) == blocked_ns(gil)
    locked_ns = int(threads["ns"][:, Bucket.LOCK_WAIT].sum())
    assert 0.5 * locked_ns < blocked_ns(gil) <= locked_ns + MS


def told_who_has_it(tracer: Tracer, python: str, **more: Any) -> None:
    with workload(python, PROGRAM, str(cuda.stub_dir()), "gil", **more) as job:
        tracer.until_target(job.pid)
        tracer.until(lambda: tracer.agent._interpreters.version_of(job.pid) is not None)
        first = len(tracer.windows)
        [said] = job.go()
        tracer.tick()
    waits = np.concatenate([window.waits for window in tracer.windows[first:]])
    waits = waits[(waits["h"]["tid"] == said["tid"]) & (waits["gil"] == GilMark.GIL_YES)]
    assert len(waits) > 10
    holders = waits["holder_tid"][waits["holder_tid"] > 0]
    assert len(holders) > 0.8 * len(waits)
    assert (holders == said["other"]).mean() > 0.8  # the main thread has it now and then
    assert set(holders.tolist()) <= {said["other"], said["tid"], job.pid}


@pytest.mark.parametrize("python", with_a_lock())
def test_who_has_the_lock_is_told(tracer: Tracer, python: str) -> None:
    told_who_has_it(tracer, python)


@pytest.mark.parametrize("python", free_threaded())
def test_a_free_threaded_python_that_uses_its_lock_is_like_others(tracer: Tracer, python: str) -> None:
    """As it does once a module is imported that needs it."""
    told_who_has_it(tracer, python, env={**os.environ, "PYTHON_GIL": "1"})


@pytest.mark.parametrize("python", with_a_lock())
def test_a_lock_between_threads_is_not_the_gil(tracer: Tracer, python: str) -> None:
    waits, threads = works(tracer, python, "lock")
    others = waits[waits["gil"] == GilMark.GIL_NO]
    assert len(others) > 10
    assert blocked_ns(others) > 0.9 * blocked_ns(waits)
    assert 0 <= int(threads["gil_ns"].sum()) < 0.1 * blocked_ns(others)


def test_a_recording_has_the_mark_and_the_sum(place: Place) -> None:
    python = with_a_lock()[0]
    done = place.ingero(
        "trace", "--no-tui", "--db", str(place.db), "--", python, PROGRAM, str(cuda.stub_dir()), "gil",
        input="go\n", stdin=None, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    marked = place.sql(
        "SELECT SUM(e.duration_ns - w.runqueue_ns), COUNT(*)"
        " FROM wait_detail w JOIN event e ON e.id = w.event_id WHERE w.gil"
    )
    ((gil_ns, count),) = marked
    assert count > 10
    assert place.sql("SELECT SUM(gil_ns) FROM thread_second") == [(gil_ns,)]
    assert place.sql("SELECT COUNT(*) FROM wait_detail w WHERE w.gil AND w.bucket <> 6") == [(0,)]
    assert place.sql("SELECT * FROM not_watched WHERE what = 'gil'") == []


def test_a_process_without_python_has_no_gil_waits(tracer: Tracer, steady: str) -> None:
    with workload(steady) as job:
        tracer.until_target(job.pid)
        job.start()
        tracer.until(lambda: len(feeding(tracer, job.pid)))
        assert set(feeding(tracer, job.pid)["gil_ns"].tolist()) == {0}


def feeding(tracer: Tracer, pid: int) -> Rows:
    threads = tracer.tick().threads
    return threads[(threads["pid"] == pid) & threads["feeder"]]


@pytest.mark.parametrize("python", free_threaded())
def test_a_free_threaded_python_has_no_lock_to_wait_for(tracer: Tracer, python: str) -> None:
    no_lock_is_watched(tracer, *works(tracer, python, "gil"))


@pytest.mark.parametrize("python", [each for each in free_threaded() if kind_of(each).executable == each])
def test_a_free_threaded_python_is_known_whatever_it_is_called(
    tracer: Tracer, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed, it is there without the t in its name, too."""
    real, named = Path(python).resolve(), tmp_path / f"python3.{kind_of(python).minor}"
    shutil.copy(real, named)
    monkeypatch.setenv("PYTHONHOME", str(real.parent.parent))
    no_lock_is_watched(tracer, *works(tracer, str(named), "gil"))


def no_lock_is_watched(tracer: Tracer, waits: Rows, threads: Rows) -> None:
    assert not np.isin(waits["gil"], [GilMark.GIL_YES]).any()
    assert int(threads["gil_ns"][-1]) == -1
    told = [each for window in tracer.windows for each in window.not_watched if each.what == "gil"]
    assert any("free-threaded" in each.why for each in told)
