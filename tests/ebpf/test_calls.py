"""Calls made are records had: in order, with arguments, results, times and thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.attach import probes
from ingero.model.layout import CallFlag
from ingero.scenarios import cuda
from tests.ebpf.tracing import NAMES, Tracer, workload

pytestmark = pytest.mark.shapes
ALL_FUNCTIONS = True

# What a runtime call that is probed at the driver shows as.
AT_DRIVER = {
    "cudaLaunchKernel": {"cuLaunchKernel"},
    "cudaMemcpyAsync": {"cuMemcpyAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"},
    "cudaEventRecord": {"cuEventRecord"},
    "cudaEventCreateWithFlags": {"cuEventCreate"},
    "cudaEventDestroy": {"cuEventDestroy_v2"},
}
SUCCESS_WRITES = {"cudaMalloc", "cudaMallocHost", "cudaStreamCreate", "cuMemAlloc_v2", "cuModuleGetFunction"}


# The interpreter may collect its garbage at any time, and that is recorded too.
COLLECTIONS = [number for number, row in enumerate(probes.ROWS, start=1) if row.layer == "python"]


def outermost(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The program's own calls."""
    return rows[((rows["flags"] & CallFlag.CALL_NESTED) == 0) & ~np.isin(rows["op"], COLLECTIONS)]


def same_call(row: np.void, made: dict[str, Any]) -> None:
    """One record against what the program says it did."""
    name = NAMES[int(row["op"])]
    header = row["h"]
    assert name == made["function"] or name in AT_DRIVER.get(made["function"], ())
    assert int(header["tid"]) == made["tid"]
    assert made["before_ns"] <= int(header["start_ns"])
    assert int(header["start_ns"]) + int(row["duration_ns"]) <= made["after_ns"]
    assert int(row["ret"]) == made["ret"]
    assert int(row["split"].sum()) == int(row["duration_ns"])
    if name == made["function"]:
        count = len(made["args"])
        assert [int(value) & mask(name, i) for i, value in enumerate(row["args"][:count])] == [
            value & mask(name, i) for i, value in enumerate(made["args"])
        ]
        if name in SUCCESS_WRITES and made["ret"] == 0:
            assert int(row["out"]) == made["out"]


def mask(name: str, index: int) -> int:
    """An int argument leaves the upper half of its register undefined."""
    narrow = {
        "cudaMemset": {1}, "cudaMemcpy": {3}, "cudaMemcpyAsync": {3}, "cudaEventCreateWithFlags": {1},
        "cuLaunchKernel": {1, 2, 3, 4, 5}, "cuInit": {0}, "cudaLaunchKernel": {2, 4}, "cuDeviceGet": {1},
        "cuDevicePrimaryCtxRetain": {1},
    }  # fmt: skip
    return 0xFFFFFFFF if index in narrow.get(name, ()) else 0xFFFFFFFFFFFFFFFF


def check_all(rows: np.ndarray[Any, Any], said: list[dict[str, Any]]) -> None:
    """Thread by thread, in order, one record for each call."""
    for tid in {made["tid"] for made in said}:
        mine = outermost(rows[rows["h"]["tid"] == tid])
        expected = [made for made in said if made["tid"] == tid]
        assert len(mine) == len(expected), [(NAMES[int(r["op"])], int(r["flags"])) for r in rows]
        for row, made in zip(mine, expected, strict=True):
            same_call(row, made)


def test_23_driver_calls_give_23_records_with_arguments_results_and_times(tracer: Tracer) -> None:
    with workload("calls23.py", "--layer", "driver") as job:
        tracer.until_target(job.pid)
        said = job.go()
        assert len(said) == 23
        check_all(tracer.calls(job.pid), said)


def test_23_runtime_calls_give_23_records_hot_ones_at_the_driver(tracer: Tracer) -> None:
    with workload("calls23.py") as job:
        tracer.until_target(job.pid)
        said = job.go()
        rows = tracer.calls(job.pid)
        check_all(rows, said)
        names = {NAMES[int(op)] for op in rows["op"]}
        assert "cuLaunchKernel" in names
        assert "cudaLaunchKernel" not in names
        launches = rows[rows["op"] == probes.BY_NAME["cuLaunchKernel"][0]]
        assert (launches["flags"] & CallFlag.CALL_FROM_RUNTIME).all()


def test_driver_calls_made_by_the_program_itself_are_direct(tracer: Tracer) -> None:
    with workload("calls23.py", "--layer", "driver") as job:
        tracer.until_target(job.pid)
        job.go()
        rows = tracer.calls(job.pid)
        launches = rows[rows["op"] == probes.BY_NAME["cuLaunchKernel"][0]]
        assert len(launches) == 6
        assert (launches["flags"] & CallFlag.CALL_DIRECT).all()


def test_streams_bytes_and_directions_are_those_of_the_call(tracer: Tracer) -> None:
    with workload("calls23.py") as job:
        tracer.until_target(job.pid)
        said = job.go()
        rows = tracer.calls(job.pid)
        stream = next(made["out"] for made in said if made["function"] == "cudaStreamCreate")
        launches = rows[rows["op"] == probes.BY_NAME["cuLaunchKernel"][0]]
        assert set(launches["stream"].tolist()) == {stream}
        copies = rows[np.isin(rows["op"], [probes.BY_NAME["cudaMemcpy"][0]])]
        assert copies["bytes"].tolist() == [65536, 12345, 4096]
        assert copies["args"][:, 3].astype(np.uint32).tolist() == [1, 2, 3]
        allocations = outermost(rows[rows["op"] == probes.BY_NAME["cudaMalloc"][0]])
        assert allocations["bytes"].tolist() == [1 << 20, 3 << 20, 1 << 50]
        assert allocations["ret"].tolist() == [0, 0, 2]


def test_threads_are_told_apart(tracer: Tracer) -> None:
    with workload("calls23.py", "--threads", "5") as job:
        tracer.until_target(job.pid)
        said = job.go()
        assert len({made["tid"] for made in said}) == 5
        check_all(tracer.calls(job.pid), said)


def test_forked_children_are_traced_from_their_first_call(tracer: Tracer) -> None:
    with workload("calls23.py", "--forks", "3") as job:
        tracer.until_target(job.pid)
        said = job.go()
        pids = {made["pid"] for made in said}
        assert len(pids) == 3
        assert job.pid not in pids
        check_all(tracer.calls(*pids), said)


def test_a_library_loaded_after_attach_is_traced(tracer: Tracer, tmp_path: Path) -> None:
    """A file nobody has mapped before, in a process that was not of interest until then."""
    library = tmp_path / "elsewhere" / "libcuda.so.1"
    library.parent.mkdir()
    library.write_bytes((cuda.stub_dir() / "libcuda.so.1").read_bytes())
    with workload("calls23.py", "--layer", "driver", "--library", str(library), "--late") as job:
        job.start()
        assert job.process.stdout is not None
        assert job.process.stdout.readline().strip() == '"loaded"'
        tracer.until_target(job.pid)
        check_all(tracer.calls(job.pid), [])
        said = job.go()
        check_all(tracer.calls(job.pid), said)


def test_two_different_library_files_at_once(tracer: Tracer) -> None:
    with workload("calls23.py") as one, workload("calls23.py", "--variant", "alt") as other:
        for job in (one, other):
            tracer.until_target(job.pid)
        one.start()
        other.start()
        for job in (one, other):
            said = job.wait_done()
            assert all(("alt" in made["library"]) == (job is other) for made in said)
            check_all(tracer.calls(job.pid), said)


def test_functions_that_begin_with_endbr64_are_probed_behind_it(tracer: Tracer) -> None:
    with workload("calls23.py", "--variant", "endbr") as job:
        tracer.until_target(job.pid)
        said = job.go()
        check_all(tracer.calls(job.pid), said)


def test_a_statically_linked_runtime_is_found_and_traced(
    tracer: Tracer, compiled: Callable[..., str]
) -> None:
    program = compiled(
        "static_runtime.c",
        "STUB/libcudart_static.a",
        "-pthread",
        "-ldl",
        "-LSTUB",
        "-l:libcuda.so.1",
        "-Wl,-rpath,STUB",
    )
    with workload(program) as job:
        tracer.until_target(job.pid)
        [said] = job.go()
        rows = outermost(tracer.calls(job.pid))
        names = [NAMES[int(op)] for op in rows["op"]]
        for function, count in said.items():
            if function.startswith("cuda"):
                seen = names.count(function) + sum(names.count(n) for n in AT_DRIVER.get(function, ()))
                assert seen == count, function


def test_the_real_runtime_without_a_driver_is_traced(tracer: Tracer, tmp_path: Path) -> None:
    """nvidia-cuda-runtime's libcudart: every call fails with 35, and every call is seen."""
    nvidia = pytest.importorskip("nvidia")
    found = [path for folder in nvidia.__path__ for path in Path(folder).glob("*/lib/libcudart.so.1?")]
    program = tmp_path / "real.py"
    program.write_text(
        "import ctypes, os, sys\n"
        "lib = ctypes.CDLL(sys.argv[1])\n"
        "print('ready', os.getpid(), flush=True); sys.stdin.readline()\n"
        "p = ctypes.c_void_p()\n"
        "for i in range(23):\n"
        "    assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1000 + i)) == 35\n"
        "for i in range(7):\n"
        "    assert lib.cudaMemcpyAsync(None, None, ctypes.c_size_t(i), 1, None) == 35\n"
        "print('done', flush=True); sys.stdin.readline()\n"
    )
    with workload(sys.executable, str(program), str(found[0])) as job:
        tracer.until_target(job.pid, driver=False)
        job.go()
        rows = tracer.calls(job.pid)
        mallocs = rows[rows["op"] == probes.BY_NAME["cudaMalloc"][0]]
        assert mallocs["bytes"].tolist() == list(range(1000, 1023))
        assert set(mallocs["ret"].tolist()) == {35}
        copies = rows[rows["op"] == probes.BY_NAME["cudaMemcpyAsync"][0]]
        assert copies["bytes"].tolist() == list(range(7))


def test_no_call_was_lost_or_unmatched(tracer: Tracer) -> None:
    """Runs last in this file: whatever the tests above did, every return had its entry."""
    tracer.tick()
    assert tracer.losses().get("return_unmatched", 0) == 0
    assert tracer.losses().get("ring_call", 0) == 0
