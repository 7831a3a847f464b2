"""A traced process that begins to listen is a server from then on."""

from __future__ import annotations

from pathlib import Path

from tests.ebpf.accounts import stage
from tests.ebpf.tracing import Tracer


def test_a_target_that_listens_is_told_and_one_that_does_not_is_told_too(
    tracer: Tracer, tmp_path: Path
) -> None:
    with stage(tracer) as acting:
        tracer.tick()
        assert tracer.agent._targets.live[acting.pid].process.listens is False
        acting.play("listen", tmp_path / "socket")
        tracer.until(lambda: tracer.tick() and tracer.agent._targets.live[acting.pid].process.listens)
        told = [
            each.listens for window in tracer.windows for each in window.processes if each.pid == acting.pid
        ]
    assert told[-1] is True
