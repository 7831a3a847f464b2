"""Memory that a job asked for and did not get is nobody's: real calls on a stub device that is full."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.ebpf.real_runs import Place, json_lines, stub

pytestmark = pytest.mark.timeout(120)
ALL_FUNCTIONS = True

MIB = 1 << 20
# Fills a device of 256 MiB to a half; then every step asks for a gigabyte, in three ways, and gets none.
JOB = """
import ctypes, json, time
from ingero.scenarios import cuda
runtime = cuda.stub_runtime()
kernel, stream = cuda.stub_kernel(), runtime.stream()
got = [runtime.malloc(16 << 20) for _ in range(8)]
asked = failed = 0
end = time.monotonic() + 9
while time.monotonic() < end:
    runtime.launch(kernel, 200, stream=stream)
    runtime.cudaStreamSynchronize(stream)
    for name, more in (("cudaMalloc", ()), ("cudaMallocAsync", (stream,)), ("cudaMallocManaged", (1,))):
        pointer = ctypes.c_void_p()
        asked += 1
        failed += runtime.try_call(name, ctypes.byref(pointer), ctypes.c_size_t(1 << 30), *more) == 2
        runtime.try_call("cudaFree", pointer)
    time.sleep(0.01)
print(json.dumps({"asked": asked, "failed": failed}), flush=True)
"""


def test_allocations_that_failed_are_no_memory_kept_anywhere(place: Place) -> None:
    words = ("trace", "--max-overhead", "off", "--db", str(place.db), "--", sys.executable, "-c", JOB)
    done = place.ingero(*words, env={**stub(), "INGERO_STUB_MEMORY": "256m"})
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said["asked"] == said["failed"] > 100
    rows = place.sql(
        "SELECT op, SUM(count), SUM(bytes) FROM operations WHERE op LIKE 'cudaMalloc%' GROUP BY op"
    )
    calls = {op: (count, size) for op, count, size in rows}
    assert calls["cudaMalloc"] == (said["asked"] // 3 + 8, 8 * 16 * MIB)
    assert calls["cudaMallocAsync"] == calls["cudaMallocManaged"] == (said["asked"] // 3, 0)
    answer = json_lines(place.ingero("explain", "-d", str(place.db), "--json").stdout)[0]
    kinds = {finding["kind"] for finding in answer["findings"]}
    assert "gpu-memory-leak" not in kinds
    assert "cuda-oom" in kinds
    (job,) = (process for process in answer["processes"] if process["operations"])
    by_line = sum(line["bytes"] or 0 for line in job["lines"] if (line["op"] or "").startswith("cudaMalloc"))
    assert by_line <= 8 * 16 * MIB
