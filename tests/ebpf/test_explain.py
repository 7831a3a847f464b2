"""`ingero explain` on what real probes recorded of a job under the stub CUDA library."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.ebpf.real_runs import NOBODY, Place, json_lines, need_others, stub
from tests.ebpf.tracing import WORKLOADS

pytestmark = pytest.mark.timeout(120)


def test_a_traced_command_ends_with_its_diagnosis_and_its_time_is_accounted(place: Place) -> None:
    words = (sys.executable, str(WORKLOADS / "busy.py"), "--steps", "60", "--kernels", "20")
    # Every launch is counted: at first all stacks are new, and cost more than the budget leaves for them.
    options = ("--max-overhead", "off", "--db", str(place.db))
    done = place.ingero("trace", *options, "--", *words, stdin=None, input="\n\n", env=stub())
    assert done.returncode == 0, done.stderr
    assert "Diagnosis of" in done.stderr
    assert "Diagnosis of" not in done.stdout
    answer = json_lines(place.ingero("explain", "-d", str(place.db), "--json").stdout)[0]
    (job,) = (process for process in answer["processes"] if process["operations"])
    calls = {line["op"]: line["count"] for line in job["operations"]}
    assert calls["cuLaunchKernel"] == 1200
    assert sum(job["time"].values()) == job["threads_ns"] > 0
    for thread in job["threads"]:
        assert sum(thread["time"].values()) == thread["ns"] <= job["wall_ns"]
    assert answer["system"]["cores"] > 0
    assert answer["overhead"]["hits_per_s"] > 0
    # One probe per end, put on one after the other: a call may be caught in between.
    torn = {"call_unwound"} if os.environ.get("INGERO_ATTACH") == "perf" else set()
    assert {loss["reason"] for loss in answer["losses"]} <= torn


def test_a_command_without_cuda_has_nothing_to_explain(place: Place) -> None:
    done = place.ingero("trace", "--db", str(place.db), "--", "sleep", "1")
    assert done.returncode == 0, done.stderr
    assert "No CUDA process was seen" in done.stderr


def test_explaining_needs_no_privileges(place: Place) -> None:
    need_others()
    assert place.ingero("trace", "--db", str(place.db), "--", "sleep", "1").returncode == 0
    with tempfile.TemporaryDirectory() as open_to_all:  # pytest's own folders are private
        Path(open_to_all).chmod(0o755)
        copy = shutil.copy(place.db, open_to_all)
        Path(copy).chmod(0o644)
        done = place.ingero("explain", "-d", copy, before=NOBODY)
    assert done.returncode == 0, done.stderr
    assert "No CUDA process was seen" in done.stdout
