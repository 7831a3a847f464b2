"""Garbage collections: every one counted, long ones recorded, and nothing else changed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.model.layout import Bucket, CallFlag, HeaderFlag
from ingero.scenarios import cuda
from tests.ebpf.accounts import MS
from tests.ebpf.test_gil import pythons
from tests.ebpf.tracing import NAMES, WORKLOADS, Tracer, tracing, workload
from tests.pythons import kind_of

PROGRAM = str(WORKLOADS / "collecting.py")
COLLECTORS = ("gc_collect_main", "_PyGC_Collect", "collect")
NUMBERS = [number for number, name in NAMES.items() if name in COLLECTORS]
pytestmark = pytest.mark.shapes


def watched(python: str) -> bool:
    """Whether its file tells where the collector is; those of distributions are stripped."""
    return not kind_of(python).executable.startswith("/usr/")


WATCHED = [each for each in pythons() if watched(each)]


def a_watched_one() -> str:
    if not WATCHED:
        pytest.skip("every Python here is a distribution's: its file does not tell where the collector is")
    return WATCHED[0]


STRANGER = """
import gc, os, sys
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
for _ in range(50):
    gc.collect()
print("done", flush=True)
sys.stdin.read()
"""


def works(tracer: Tracer, python: str) -> tuple[dict[str, Any], int]:
    with workload(python, PROGRAM, str(cuda.stub_dir())) as job:
        tracer.until_target(job.pid)
        tracer.tick()
        [said] = job.go()
        tracer.tick()
    return said, job.pid


@pytest.mark.parametrize("python", WATCHED)
def test_every_collection_is_counted_and_long_ones_are_recorded(tracer: Tracer, python: str) -> None:
    said, pid = works(tracer, python)
    rows = tracer.gather("operations", pid)
    mine = rows[np.isin(rows["op"], NUMBERS)]
    assert int(mine["count"].sum()) == said["collections"] > len(said["took_ns"])
    assert int(mine["slots"].sum()) == said["collections"]
    records = tracer.gather("calls", pid)
    records = records[np.isin(records["op"], NUMBERS)]
    theirs = records[records["h"]["tid"] == said["tid"]]
    assert (records["duration_ns"] >= MS).all()
    assert len(records) == mine["recorded"].sum() <= said["collections"]
    if not kind_of(python).free_threaded:  # else every collection goes through everything
        assert len(records) < said["collections"]
    # In the order they were made, each inside what the program measured around it.
    long = [took for took in said["took_ns"] if took >= 2 * MS]
    assert len(long) >= 3
    found = theirs["duration_ns"].tolist()[: len(said["took_ns"])]
    assert all(ns <= took for ns, took in zip(found, said["took_ns"], strict=False))
    assert len(theirs) >= len(long)


@pytest.mark.parametrize("python", WATCHED)
def test_a_collection_is_host_work_and_makes_nobody_a_feeder(tracer: Tracer, python: str) -> None:
    said, pid = works(tracer, python)
    threads = tracer.gather("threads", pid)
    mine = threads[threads["tid"] == said["tid"]]
    assert not mine["feeder"].any()
    assert int(mine["ns"][:, Bucket.CUDA_CPU].sum()) == 0
    assert int(mine["ns"][:, Bucket.HOST_CPU].sum()) > 0
    records = tracer.gather("calls", pid)
    collecting = records[np.isin(records["op"], NUMBERS) & (records["h"]["tid"] == said["tid"])]
    assert not (collecting["h"]["flags"] & HeaderFlag.H_FEEDER).any()
    assert (collecting["split"].sum(axis=1) == collecting["duration_ns"]).all()
    assert not collecting["split"][:, Bucket.CUDA_CPU].any()


@pytest.mark.parametrize("python", WATCHED)
def test_what_finalizers_call_is_not_nested_in_the_collection(tracer: Tracer, python: str) -> None:
    _, pid = works(tracer, python)
    calls = tracer.calls(pid)
    freed = calls[calls["op"] == next(number for number, name in NAMES.items() if name == "cudaFree")]
    assert len(freed) == 20
    assert not (freed["flags"] & CallFlag.CALL_NESTED).any()
    assert not freed["depth"].any()


@pytest.mark.parametrize("python", [each for each in pythons() if not watched(each)])
def test_where_the_collector_has_no_symbol_the_reason_is_told(tracer: Tracer, python: str) -> None:
    _, pid = works(tracer, python)
    told = [each for window in tracer.windows for each in window.not_watched if each.pid == pid]
    assert [(each.what, Path(kind_of(python).executable).resolve().name in each.why) for each in told] == [
        ("gc", True)
    ]
    assert any(
        "garbage collections are not counted" in each for each in tracer.agent._targets.warnings.values()
    )


def test_it_can_be_left_out_and_others_are_not_looked_at() -> None:
    python = a_watched_one()
    with tracing(without=frozenset({"python"})) as tracer:
        _, pid = works(tracer, python)
        assert not np.isin(tracer.gather("operations", pid)["op"], NUMBERS).any()
        assert tracer.agent._collectors.count() == 0


def test_a_process_that_is_not_traced_is_not_counted_though_it_shares_the_interpreter(tracer: Tracer) -> None:
    python = a_watched_one()
    works(tracer, python)
    with workload(python, "-c", STRANGER) as job:
        job.go()
        tracer.tick()
        assert job.pid not in tracer.agent._targets.live
    assert not len(tracer.gather("operations", job.pid))
