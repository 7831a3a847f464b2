"""Dashboard, alerts and the page of metrics are what the metric list makes them, and leave nothing out."""

from __future__ import annotations

import importlib.util
import json
import re
from types import ModuleType

import pytest
import yaml

from ingero.fleet.collector.exposition import SERIES as FLEET_SERIES
from ingero.model.metrics import ALL, BY_NAME, LABELS, UNITS, Kind, Metric
from tests.contracts.tree import ROOT, files, name


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("monitoring_tool", ROOT / "tools/monitoring.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def series() -> set[str]:
    parts = ("bucket", "sum", "count")
    found = {f"{row.series}_{part}" for row in ALL if row.kind is Kind.HISTOGRAM for part in parts}
    return found | {row.series for row in ALL}


@pytest.mark.parametrize("made", tool().written())
def test_the_files_are_what_the_list_makes_them(made: str) -> None:
    assert (ROOT / made).read_text(encoding="utf-8") == tool().written()[made], "run make docs"


def test_every_metric_is_on_a_panel() -> None:
    queries = json.dumps(json.loads((ROOT / "deploy/grafana/ingero.json").read_text()))
    assert not [row.series for row in ALL if row.series not in queries]


def test_every_series_that_is_asked_for_exists() -> None:
    asked = set(re.findall(r"\bingero_[a-z0-9_]+", (ROOT / "deploy/grafana/ingero.json").read_text()))
    asked |= set(
        re.findall(r"\bingero_[a-z0-9_]+", (ROOT / "deploy/prometheus/ingero.rules.yml").read_text())
    )
    assert asked <= series()


def test_every_metric_that_a_page_names_exists() -> None:
    """A fleet's collector has metrics of its own; what another implementation has stands on the left."""
    known, wrong = series() | set(FLEET_SERIES), {}
    for page in (each for each in files() if each.suffix == ".md" and each.name != "CHANGELOG.md"):
        text, _, others = page.read_text(encoding="utf-8").partition("## Coming from the Go implementation")
        ours = [text, *(line.split("|")[2] for line in others.splitlines() if line.startswith("|"))]
        if missing := set(re.findall(r"\bingero_[a-z0-9_]+", " ".join(ours))) - known:
            wrong[name(page)] = missing
    assert not wrong


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
