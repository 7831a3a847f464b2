"""A call that began before we came is found on its thread's stack.

No other agent may run here: its probes would stand where return addresses are read.
"""

from __future__ import annotations

import time

import pytest

from tests.ebpf.tracing import PATIENCE, tracing, workload

BEGAN_S = 0.3  # the trace has looked at those who were in a call


@pytest.mark.parametrize("how", ["spinning", "blocked"])
def test_a_call_that_began_before_attach_is_found_on_its_stack(how: str) -> None:
    flags = ["--block"] if how == "blocked" else []
    with (
        workload("devices.py", "--early", "--seconds", str(8 * PATIENCE), *flags) as job,
        tracing(pids=(job.pid,)) as tracer,
    ):
        time.sleep(BEGAN_S)
        found = tracer.waiting_calls(job.pid)
        assert "cudaDeviceSynchronize" in found, f"only {list(found)}"
        assert found["cudaDeviceSynchronize"]["h"]["tid"] != job.pid
