"""Dashboard, alerts and the page of metrics are what the metric list makes them, and leave nothing out."""

from __future__ import annotations

import importlib.util
import json
import re
from types import ModuleType

import pytest
import yaml

from ingero.model.metrics import ALL, BY_NAME, LABELS, UNITS, Kind, Metric
from tests.contracts.tree import ROOT


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("monitoring_tool", ROOT / "tools/monitoring.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", tool().written())
def test_the_files_are_what_the_list_makes_them(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == tool().written()[name], "run make docs"


def test_every_metric_is_on_a_panel() -> None:
    queries = json.dumps(json.loads((ROOT / "deploy/grafana/ingero.json").read_text()))
    assert not [row.series for row in ALL if row.series not in queries]


def test_every_series_that_is_asked_for_exists() -> None:
    asked = set(re.findall(r"\bingero_[a-z0-9_]+", (ROOT / "deploy/grafana/ingero.json").read_text()))
    asked |= set(
        re.findall(r"\bingero_[a-z0-9_]+", (ROOT / "deploy/prometheus/ingero.rules.yml").read_text())
    )
    known = {row.series for row in ALL}
    known |= {
        f"{row.series}_{part}"
        for row in ALL
        if row.kind is Kind.HISTOGRAM
        for part in ("bucket", "sum", "count")
    }
    assert asked <= known


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    (group,) = yaml.safe_load((ROOT / "deploy/prometheus/ingero.rules.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "action"} <= set(rule["annotations"])
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_names_follow_the_conventions(row: Metric) -> None:
    assert re.fullmatch(r"ingero(\.[a-z][a-z0-9_]*)+", row.name)
    assert row.unit in UNITS or re.fullmatch(r"\{[a-z]+\}", row.unit)
    assert not row.prometheus.endswith(("_total", "_count", "_sum", "_bucket"))
    assert row.kind is not Kind.HISTOGRAM or row.unit == "s"
    assert row.help.endswith(".")
    assert row.source
    assert set(row.labels) <= set(LABELS)
    assert "le" not in row.labels


def test_no_label_is_named_twice_or_unused() -> None:
    attributes = [attribute for attribute, _ in LABELS.values()]
    assert len(set(attributes)) == len(attributes)
    assert set(LABELS) == {label for row in BY_NAME.values() for label in row.labels}
