"""Programs under a seccomp filter that kills for what it does not know survive their trace, and count."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ingero.attach import probe_cost
from ingero.attach.probe_cost import FORCED
from ingero.attach.probes import BY_NAME
from ingero.model.window import CALL_TIMES
from ingero.scenarios import cuda
from tests.ebpf.tracing import WORKLOADS, tracing, workload

PROGRAM = str(WORKLOADS / "under_filter.py")
CALLS = 23
MALLOC = BY_NAME["cudaMalloc"][0]


def filtered_calls(**options: object) -> tuple[int, int, list[str]]:
    """Of a filtered program: calls counted, how many have a record, what is said of it."""
    with (
        tracing(record_all=True, **options) as tracer,
        workload(sys.executable, PROGRAM, str(cuda.stub_dir())) as job,
    ):
        tracer.until_target(job.pid, driver=False)
        job.go()
        tracer.tick()
        assert "\nSeccomp:\t2\n" in Path(f"/proc/{job.pid}/status").read_text()
        records = [row for row in tracer.calls(job.pid) if row["op"] == MALLOC]
        counted = tracer.counts(job.pid)["cudaMalloc"]
        said = [each.what for window in tracer.windows for each in window.not_watched if each.pid == job.pid]
        assert job.end() == 0
        return counted, len(records), said


def test_what_this_kernel_does_to_filtered_programs_is_found_out_with_a_child_of_ours() -> None:
    _, verdict = probe_cost.measure()
    assert "child" in verdict.why


def test_a_filtered_program_survives_its_trace_and_is_counted() -> None:
    counted, _, _ = filtered_calls()
    assert counted == CALLS + 1  # the first without the filter


@pytest.mark.skipif(os.environ.get("INGERO_ATTACH") == "perf", reason="the same as under the multi shape")
@pytest.mark.parametrize("shape", ["session", "multi"])
def test_where_a_return_may_kill_it_it_is_counted_at_the_entry_alone(
    monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    monkeypatch.setenv(FORCED, "unsafe")
    monkeypatch.setenv("INGERO_ATTACH", shape)
    counted, records, said = filtered_calls()
    assert counted == CALLS + 1
    assert records == (1 if shape == "session" else 0)  # that of the call without the filter
    assert CALL_TIMES in said


def test_others_are_timed_as_ever_where_the_shape_tells_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCED, "unsafe")
    monkeypatch.setenv("INGERO_ATTACH", "session")
    with tracing(record_all=True) as tracer, workload("calls23.py", "--layer", "driver") as job:
        tracer.until_target(job.pid)
        job.go()
        assert len(tracer.calls(job.pid)) >= CALLS
