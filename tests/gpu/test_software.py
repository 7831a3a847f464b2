"""Real software as it is used: what it calls is seen, and what it launches has a name."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gpu.conftest import Traced

LAUNCHES = "SELECT SUM(weight) FROM cuda_events WHERE op LIKE 'cuLaunchKernel%'"
ALL = ("--record-all", "--max-overhead", "off")


def named_share(trace: Traced) -> float:
    launched = trace.count(LAUNCHES)
    assert launched, trace.output[-2000:]
    return trace.count(f"{LAUNCHES} AND kernel_name IS NOT NULL AND kernel_name NOT LIKE '%+0x%'") / launched


def counted(trace: Traced, where: str) -> int:
    return trace.count(f"SELECT COUNT(*) FROM cuda_events WHERE {where}")


@pytest.mark.parametrize("name", ["eager", "amp", "libraries", "loaders", "compiled"])
def test_launches_have_names(tmp_path: Path, name: str) -> None:
    trace = Traced(tmp_path, name, *ALL)
    assert named_share(trace) > 0.99
    if "kernel" in trace.said:
        assert counted(trace, f"kernel_name LIKE '{trace.said['kernel']}%'")
    assert trace.losses() == []


def test_graph_lifecycle(tmp_path: Path) -> None:
    trace = Traced(tmp_path, "graphs", *ALL)
    assert counted(trace, "op = 'cudaGraphLaunch'") == trace.said["graph_launches"]
    for step in ("BeginCapture", "EndCapture", "Instantiate"):
        assert counted(trace, f"op LIKE '%{step}%'") >= 1, step


@pytest.mark.parametrize(
    ("configured", "seen"),
    [
        ("", "op IN ('cuMemAlloc_v2', 'cudaMalloc')"),
        ("expandable_segments:True", "op IN ('cuMemCreate', 'cuMemMap')"),
        (
            "backend:cudaMallocAsync",
            "op LIKE '%MallocAsync%' OR op LIKE 'cuMemAlloc%Async%' OR op LIKE 'cudaMallocFromPool%'",
        ),
    ],
)
def test_allocators(tmp_path: Path, configured: str, seen: str) -> None:
    trace = Traced(tmp_path, "allocations", *ALL, PYTORCH_CUDA_ALLOC_CONF=configured)
    assert counted(trace, seen) >= 1, trace.sql("SELECT op, COUNT(*) FROM cuda_events GROUP BY 1")
    assert counted(trace, f"({seen}) AND bytes > 0") >= 1


def test_copies_have_bytes_and_direction(tmp_path: Path) -> None:
    trace = Traced(tmp_path, "pinned", *ALL)
    rows = trace.sql(
        "SELECT COUNT(*), SUM(bytes) FROM cuda_events WHERE op LIKE 'cuMemcpyHtoD%' AND bytes = 4194304 "
        "AND timestamp_ns BETWEEN ? AND ?", trace.said["begin"], trace.said["end"],
    )  # fmt: skip
    assert rows == [(trace.said["copies"], trace.said["bytes"])]
    assert counted(trace, "op LIKE 'cuMemcpyHtoD%' AND direction IS NOT 'HtoD'") == 0


def test_collectives_of_one_rank(tmp_path: Path) -> None:
    trace = Traced(tmp_path, "collectives", *ALL)
    reduced = trace.sql(
        "SELECT bytes, seq, rank, nranks FROM nccl_events WHERE op = 'ncclAllReduce' ORDER BY seq"
    )
    assert [row[0] for row in reduced] == [trace.said["bytes"]] * trace.said["all_reduces"]
    assert {row[2:] for row in reduced} == {(0, 1)}


def test_threads_and_streams(tmp_path: Path) -> None:
    trace = Traced(tmp_path, "streams", *ALL)
    each = trace.sql(
        "SELECT tid, stream, COUNT(*) FROM cuda_events WHERE op LIKE 'cuLaunchKernel%' "
        "GROUP BY 1, 2 HAVING COUNT(*) >= 200"
    )
    assert len({row[0] for row in each}) == len({row[1] for row in each}) == trace.said["threads"]


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
def test_cupy(tmp_path: Path) -> None:
    trace = Traced(tmp_path, "cupy", *ALL)
    assert trace.count(LAUNCHES) >= 20
    assert named_share(trace) > 0.99


STATIC = """
#include <cstdio>
__global__ void twice(int *v) { v[threadIdx.x] *= 2; }
int main() {
    int *v, back = 0;
    cudaMalloc(&v, 1024);
    for (int i = 0; i < 1000; i++) twice<<<1, 32>>>(v);
    for (int i = 0; i < 23; i++) cudaMemcpy(&back, v, 4, cudaMemcpyDeviceToHost);
    return cudaDeviceSynchronize();
}
"""


@pytest.mark.skipif(
    shutil.which("nvcc") is None and not Path("/usr/local/cuda/bin/nvcc").exists(), reason="no nvcc"
)
@pytest.mark.parametrize("shape", ["session", "multi", "perf"])
def test_a_runtime_linked_statically(tmp_path: Path, shape: str) -> None:
    import sqlite3

    from benchmarks import jobs

    source, program, db = tmp_path / "static.cu", tmp_path / "static", tmp_path / "static.db"
    source.write_text(STATIC)
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    subprocess.run([nvcc, "-cudart", "static", "-o", program, source], check=True)
    command = [*jobs.INGERO, "trace", "--no-tui", "--db", str(db), *ALL, "--", str(program)]
    environment = jobs.environment(tmp_path) | {"INGERO_ATTACH": shape}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(db) as connection:
        rows = dict(connection.execute("SELECT op, COUNT(*) FROM cuda_events GROUP BY 1").fetchall())
        names = {
            row[0]
            for row in connection.execute(
                "SELECT DISTINCT kernel_name FROM cuda_events WHERE op LIKE 'cuLaunch%'"
            )
        }
    assert sum(count for op, count in rows.items() if op.startswith("cuLaunchKernel")) == 1000, rows
    assert sum(count for op, count in rows.items() if op.startswith("cuMemcpyDtoH")) == 23, rows
    assert any(name and "twice" in name for name in names), names
