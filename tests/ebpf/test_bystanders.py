"""Who the others are: culprits that are not traced, looked up while they are there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ebpf.accounts import Stage, stage
from tests.ebpf.test_accounting import first_and_last_core, hogs
from tests.ebpf.tracing import Tracer


@pytest.fixture(scope="module")
def acting(tracer: Tracer) -> Iterator[Stage]:
    with stage(tracer) as running:
        yield running


def test_those_who_took_the_core_are_told_once_and_are_no_targets(acting: Stage, tracer: Tracer) -> None:
    _, core = first_and_last_core()
    with hogs(2, core) as culprits:
        played = acting.play("spin_on", core, "1.0")
    met = [each for window in played.windows for each in window.bystanders]
    theirs = [each for each in met if each.pid in culprits]
    assert {each.pid for each in theirs} == culprits
    assert len(theirs) == len(culprits)
    assert all("while True" in each.cmdline and not each.target for each in theirs)
    assert not culprits & set(tracer.agent._targets.live)
    assert not {acting.pid} & {each.pid for each in met}
    assert not culprits & {each.pid for window in played.windows for each in window.processes}
