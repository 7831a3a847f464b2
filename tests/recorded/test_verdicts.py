"""What real recordings of the Go implementation say, read by accounted time.

Its own verdicts on them were wrong: sleep taken for preemption, the journal's writes
for checkpoints, a first allocation for a slow one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.model.report import Report
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range


def ask(shared_dir: Path, name: str) -> Report:
    return get_report(shared_dir / "data" / f"{name}.db", Range())


@pytest.mark.parametrize("node", ["sample-gpu-node-02", "sample-gpu-node-03"])
def test_a_loop_that_sleeps_is_healthy_whatever_journal_and_agent_write(shared_dir: Path, node: str) -> None:
    report = ask(shared_dir, node)
    assert report.findings == []
    assert report.unexplained == []


def test_reading_libraries_at_start_up_is_waiting_for_the_disk(shared_dir: Path) -> None:
    report = ask(shared_dir, "sample-gpu-node-01")
    assert [finding.kind for finding in report.findings] == ["disk-wait"]
    assert report.findings[0].causes[0].bucket == "disk_wait"


def test_a_loader_that_works_item_by_item_starves_the_gpu(shared_dir: Path) -> None:
    report = ask(shared_dir, "pytorch-dataloader-starvation")
    assert report.findings[0].kind == "data-starvation"
    assert report.findings[0].victim.pid == 2233
    assert len(report.findings) <= 4
    assert not {"cpu-contention", "noisy-neighbour"} & {finding.kind for finding in report.findings}
