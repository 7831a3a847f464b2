"""From recordings of several nodes to the one that is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.model.finding import Finding
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.serve.answers.several_nodes import across_recordings
from ingero.store.merge.result import merge
from tests.met_nodes import record_rank

NODES = ("gpu-node-01", "gpu-node-02", "gpu-node-03")
AHEAD_MS = (0.0, 80.0, -33.0)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nodes")
    parts = [
        record_rank(folder / f"{node}.db", node, rank, len(NODES), 1, ahead_ms)
        for rank, (node, ahead_ms) in enumerate(zip(NODES, AHEAD_MS, strict=True))
    ]
    merge(parts, folder / "all.db")
    return folder / "all.db"


def about(findings: list[Finding]) -> str:
    (found,) = findings
    assert found.kind == "nccl-straggler"
    return found.title


def test_the_diagnosis_of_a_merged_database_has_one_finding_about_the_late_rank(merged: Path) -> None:
    title = about(get_report(merged, Range()).findings)
    assert title.startswith("Rank 1 on gpu-node-02 arrives 41 ms late in every step; there log-shipper")


def test_nodes_that_were_diagnosed_elsewhere_are_looked_at_together_all_the_same(merged: Path) -> None:
    assert about(across_recordings(merged, {}).findings).startswith("Rank 1 on gpu-node-02 arrives 41 ms")


def test_who_asks_for_one_process_is_told_that_nodes_were_not_compared(merged: Path) -> None:
    said = [each.what for each in get_report(merged, Range(), pid=100).not_watched]
    assert said[0] == "who waits for whom across nodes"


def test_one_node_of_it_is_not_compared(merged: Path) -> None:
    report = get_report(merged, Range(), node="gpu-node-01")
    assert "nccl-straggler" not in [each.kind for each in report.findings]
