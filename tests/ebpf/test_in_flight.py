"""Calls still running are visible while they last."""

from __future__ import annotations

import os
import time

from ingero.attach import probes
from tests.ebpf.tracing import Tracer, workload

LASTS_S = 1.6  # of the three seconds that the call takes


def test_a_call_in_flight_is_listed_with_its_start(tracer: Tracer) -> None:
    with workload("devices.py", "--seconds", "3", env={**os.environ, "INGERO_STUB_DEVICES": "2"}) as job:
        tracer.until_target(job.pid)
        before = time.monotonic_ns()
        job.start()
        time.sleep(LASTS_S)
        found = tracer.waiting_calls(job.pid)
        assert "cudaDeviceSynchronize" in found
        row = found["cudaDeviceSynchronize"]
        assert before <= int(row["call_start_ns"]) < int(row["now_ns"])
        assert int(row["now_ns"]) - int(row["call_start_ns"]) >= 1_000_000_000
        job.wait_done()
        assert "cudaDeviceSynchronize" not in tracer.waiting_calls(job.pid)


def test_the_device_a_thread_chose_is_on_its_calls(tracer: Tracer) -> None:
    with workload("devices.py", env={**os.environ, "INGERO_STUB_DEVICES": "2"}) as job:
        tracer.until_target(job.pid)
        [said] = job.go()
        rows = tracer.calls(job.pid)
        mallocs = rows[rows["op"] == probes.BY_NAME["cudaMalloc"][0]]
        seen = {int(row["h"]["tid"]): (int(row["gpu_id"]), int(row["bytes"])) for row in mallocs}
        assert seen == {each["tid"]: (each["device"], each["bytes"]) for each in said}
