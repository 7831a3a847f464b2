"""Threads that lose their core all the time: every nanosecond is in one bucket, whoever interrupts whom."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero.attach import kernel
from tests.ebpf import sums

PROGRAM = ("-pthread", "-L", "STUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB", "-Wl,-rpath-link,STUB")
PROBES = Path(__file__).parents[2] / "probes"
CLANG = ("clang", "-g", "-O2", "-mcpu=v3", "-target", "bpf", "-D__TARGET_ARCH_x86", "-Wno-unused-parameter")
AS_BEFORE_6_2 = ("-DINGERO_THREADS_BY_NUMBER", "-I/usr/include/x86_64-linux-gnu", f"-I{PROBES}")


@pytest.mark.shapes
def test_buckets_sum_to_the_duration_of_every_call_and_thread(compiled: Callable[..., str]) -> None:
    looked_at, faults = sums.run(compiled("yielding.c", *PROGRAM))
    assert faults == [], looked_at


def test_threads_are_found_by_number_where_the_tasks_own_storage_may_not_answer(
    compiled: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on kernels before 6.2: the same probes, compiled to never ask the task."""
    if "x86_64" not in kernel.object_path("call"):
        pytest.skip("compiled for x86 only")

    def by_number(name: str) -> str:
        made = tmp_path / f"{name}.bpf.o"
        if not made.exists():
            source = PROBES / f"{name}.bpf.c"
            subprocess.run([*CLANG, *AS_BEFORE_6_2, "-c", source, "-o", made], check=True)
        return str(made)

    monkeypatch.setattr(kernel, "object_path", by_number)
    looked_at, faults = sums.run(compiled("yielding.c", *PROGRAM))
    assert faults == [], looked_at
