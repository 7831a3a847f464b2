"""Calls counted on a card against what counts them independently."""

from __future__ import annotations

from pathlib import Path

from tests.gpu.conftest import Traced

EXACT = ("--record-all", "--max-overhead", "off")
# What torch.profiler calls a call, and where the probe saw it. Libraries carry a runtime of
# their own, so calls of "the runtime" are not told from direct ones here.
SEEN_AS = {
    ("cudaLaunchKernel", "cuLaunchKernel"): "op = 'cuLaunchKernel'",
    ("cudaLaunchKernelExC", "cuLaunchKernelEx"): "op = 'cuLaunchKernelEx'",
    ("cudaMemcpyAsync",): "op LIKE 'cuMemcpy%Async%'",
    ("cudaMemsetAsync",): "op LIKE 'cuMemset%Async%'",
}


def test_calls_are_those_the_profiler_counts(tmp_path: Path) -> None:
    trace = Traced(tmp_path, "profiled", *EXACT)
    within = (trace.said["begin"], trace.said["end"])
    seen = {
        names: trace.count(
            f"SELECT COUNT(*) FROM cuda_events WHERE {where} AND timestamp_ns BETWEEN ? AND ?", *within
        )
        for names, where in SEEN_AS.items()
    }
    print(trace.said["counts"])
    assert seen == {names: sum(trace.said["counts"].get(name, 0) for name in names) for names in SEEN_AS}
    assert trace.losses() == []


def test_exact_without_a_budget(tmp_path: Path) -> None:
    trace = Traced(tmp_path, "launches", "--max-overhead", "off")
    launched = trace.count("SELECT SUM(count) FROM operations WHERE op LIKE 'cuLaunchKernel%'")
    assert launched - trace.said["launches"] in (0, 1)  # one that fills the memory with zeros
    assert trace.count("SELECT MIN(exact) FROM operations") == 1


def test_within_the_stated_error_under_a_budget(tmp_path: Path) -> None:
    trace = Traced(tmp_path, "launches", "--max-overhead", "0.5%")
    (row,) = trace.sql(
        "SELECT SUM(count), SUM(count_error), MIN(exact) FROM operations WHERE op LIKE 'cuLaunchKernel%'"
    )
    counted, error, exact = (float(str(each)) for each in row)
    print(f"{trace.said['launches']} launches, counted {counted:.0f} +- {error:.0f}, exact {exact}")
    assert not exact, "the budget of 0.5 % was never felt"
    assert abs(counted - trace.said["launches"]) <= error + 1
    synced = trace.count("SELECT SUM(count) FROM operations WHERE op = 'cudaDeviceSynchronize'")
    assert synced in (trace.said["syncs"], trace.said["syncs"] + 1)
