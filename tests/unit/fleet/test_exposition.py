"""The collector's own series: bounded labels, and the alerts ask for nothing else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from ingero.fleet.collector.commit import Committer
from ingero.fleet.collector.exposition import CLUSTERS, SERIES, text
from ingero.model.fleet import NodeStatus
from tests.unit.fleet.rounds import finding

ROOT = Path(__file__).parents[3]


def shown(*nodes: NodeStatus, **requests: int) -> str:
    watch: Any = SimpleNamespace(nodes=list(nodes), at_ns=5_000_000_000, took_s=0.25, rounds_dropped=4)
    return text(watch, Committer(SimpleNamespace(insert=None)), Counter(requests))  # type: ignore[arg-type]


def test_nodes_are_counted_by_state_and_never_named() -> None:
    found = shown(
        NodeStatus("c1", "gpu-1", "fine", 0, lost_events=3),
        NodeStatus("c1", "gpu-2", "critical", 0, findings=[finding(severity="CRITICAL", kind="nccl-hang")]),
        taken=7,
    )
    assert 'ingero_fleet_nodes{cluster="c1",state="fine"} 1' in found
    assert 'ingero_fleet_findings{kind="nccl-hang",severity="CRITICAL"} 1' in found
    assert 'ingero_fleet_requests_total{outcome="taken"} 7' in found
    assert "ingero_fleet_nodes_losing_events 1" in found
    assert "gpu-1" not in found


def test_clusters_without_end_share_series() -> None:
    found = shown(*(NodeStatus(f"c{at}", f"n{at}", "fine", 0) for at in range(CLUSTERS + 30)))
    assert 'ingero_fleet_nodes{cluster="other",state="fine"} 30' in found
    assert len({line.partition('"')[2].partition('"')[0] for line in found.splitlines()
                if line.startswith("ingero_fleet_nodes{")}) == CLUSTERS + 1  # fmt: skip


def test_a_name_cannot_end_its_label() -> None:
    assert 'cluster="a\\"b\\\\c"' in shown(NodeStatus('a"b\\c', "n", "fine", 0))


def test_every_series_is_described_and_the_alerts_ask_for_those_only() -> None:
    given = {line.split("{")[0].split()[0] for line in shown().splitlines() if not line.startswith("#")}
    assert given <= set(SERIES)
    rules = (ROOT / "deploy/prometheus/ingero-fleet.rules.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\bingero_fleet_[a-z_]+", rules)) <= set(SERIES)
    (group,) = yaml.safe_load(rules)["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "action"} <= set(rule["annotations"])
        for name in re.findall(r"(?:increase|rate)\((\w+)", rule["expr"]):
            assert SERIES[name][0] == "counter"  # of a gauge they say nothing
