"""A call that began before we came is found on its thread's stack.

No other agent may run here: its probes would stand where return addresses are read.
"""

from __future__ import annotations

import pytest

from tests.ebpf.tracing import PATIENCE, tracing, workload


@pytest.mark.parametrize("how", ["spinning", "blocked"])
def test_a_call_that_began_before_attach_is_found_on_its_stack(how: str) -> None:
    flags = ["--block"] if how == "blocked" else []
    with (
        workload("devices.py", "--early", "--seconds", str(8 * PATIENCE), *flags) as job,
        tracing(pids=(job.pid,)) as tracer,
    ):
        tracer.until(lambda: "cudaDeviceSynchronize" in tracer.waiting_calls(job.pid))
        found = tracer.waiting_calls(job.pid)
        assert "cudaDeviceSynchronize" in found, f"only {list(found)}"
        assert found["cudaDeviceSynchronize"]["h"]["tid"] != job.pid
