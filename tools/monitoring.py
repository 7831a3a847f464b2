"""Writes what ships for monitoring from the metric list: dashboard, alert rules, the page of metrics.

    python tools/monitoring.py [FOLDER]

FOLDER is where the tree is, this one by default. A test holds the files against what this would write.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ingero.model.metrics import ALL, BY_NAME, LABELS, PREFIX, PROCESS, Kind

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "deploy/monitoring"
DASHBOARD, RULES, PAGE = "deploy/grafana/ingero.json", "deploy/prometheus/ingero.rules.yml", "docs/metrics.md"
NAMED = re.compile(r"<([a-z0-9_.]+)(?::(bucket|sum|count))?(?:\|([^<>]*))?>")
CHOICES = ("instance", "namespace", "process")
WIDTH, HEIGHT = 24, 8
PARTS = {Kind.HISTOGRAM: ("bucket", "sum", "count")}


def expression(text: str, choices: bool) -> str:
    """With series in place of the names; with `choices`, those of the dashboard's menus."""

    def series(found: re.Match[str]) -> str:
        row = BY_NAME[found[1]]
        if (found[2] or "") not in PARTS.get(row.kind, ("",)):
            raise ValueError(f"{row.name}: {found[2] or 'whole'} is no part of a {row.kind}")
        matchers = [found[3]] if found[3] else []
        if choices:
            known = CHOICES if row.of_process else CHOICES[:1]
            matchers = [*(f'{name}=~"${name}"' for name in known), *matchers]
        name = f"{row.series}_{found[2]}" if found[2] else row.series
        return f"{name}{{{','.join(matchers)}}}" if matchers else name

    return NAMED.sub(series, text)


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((SOURCES / "panels.yaml").read_text(encoding="utf-8"))
    return found


def alerts() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((SOURCES / "alerts.yaml").read_text(encoding="utf-8"))
    return found


# --- Grafana ------------------------------------------------------------------------


def dashboard() -> str:
    panels = [{**panel, "id": number} for number, panel in enumerate(_panels(), start=1)]
    board = {
        "title": "ingero",
        "uid": "ingero",
        "description": "Why GPU jobs are slow. Written by tools/monitoring.py.",
        "tags": ["gpu", "ingero"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), *map(_menu, CHOICES)]},
        "annotations": {"list": []},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _menu(name: str) -> dict[str, Any]:
    series = BY_NAME["build.info" if name == "instance" else "process.info"].series
    query = f"label_values({series}, {name})"
    return {
        "name": name, "type": "query", "query": query,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "includeAll": True, "multi": True, "allValue": ".*", "refresh": 2, "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panels() -> Iterator[dict[str, Any]]:
    top = 0
    for group in groups():
        yield {"type": "row", "title": group["row"], "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top}}
        top, left = top + 1, 0
        for panel in group["panels"]:
            width = WIDTH if panel.get("wide") else WIDTH // 3
            if left + width > WIDTH:
                top, left = top + HEIGHT, 0
            yield _panel(panel, {"h": HEIGHT, "w": width, "x": left, "y": top})
            left += width
        top += HEIGHT


def _panel(panel: dict[str, Any], where: dict[str, int]) -> dict[str, Any]:
    instant = panel["kind"] in ("table", "stat")
    targets = [
        {
            "refId": chr(ord("A") + number), "expr": expression(query, choices=True),
            "legendFormat": panel["legend"], "instant": instant,
            "format": {"heatmap": "heatmap", "table": "table"}.get(panel["kind"], "time_series"),
        }
        for number, query in enumerate(panel["queries"])
    ]  # fmt: skip
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 60} if panel.get("stack") else {}
    return {
        "type": panel["kind"], "title": panel["title"], "gridPos": where, "targets": targets,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "fieldConfig": {"defaults": {"unit": panel.get("unit", "short"), "custom": custom}, "overrides": []},
    }  # fmt: skip


# --- Prometheus -----------------------------------------------------------------------


def rules() -> str:
    made = [
        {
            "alert": alert["alert"],
            "expr": expression(alert["expr"], choices=False),
            "for": alert["for"],
            "labels": {"severity": alert["severity"]},
            "annotations": {"summary": alert["summary"], "action": alert["action"]},
        }
        for alert in alerts()
    ]
    text = yaml.safe_dump({"groups": [{"name": "ingero", "rules": made}]}, sort_keys=False, width=1000)
    return f"# Written by tools/monitoring.py; do not edit.\n{text}"


# --- the page -----------------------------------------------------------------------


def page() -> str:
    text = (SOURCES / "page.txt").read_text(encoding="utf-8")
    parts = {
        "metrics": _metric_rows(), "live_only": _live_only_rows(), "labels": _label_rows(),
        "alerts": _alert_rows(),
    }  # fmt: skip
    for name, rows in parts.items():
        text = text.replace(f"@{name}@\n", "".join(rows))
    return text


def _metric_rows() -> Iterator[str]:
    yield "| Prometheus | OTLP | kind | unit | labels | meaning | from |\n|---|---|---|---|---|---|---|\n"
    for row in ALL:
        labels = ["process"] if row.of_process else []
        labels += list(row.labels[len(PROCESS) :] if row.of_process else row.labels)
        cells = [
            f"`{row.series}`", f"`{row.name}`", row.kind.value, row.unit.replace("|", ""),
            ", ".join(labels), row.help, row.source,
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |\n"


def _live_only_rows() -> Iterator[str]:
    yield "| not in a recording | why |\n|---|---|\n"
    yield from (f"| `{row.name}` | {row.live_only} |\n" for row in ALL if row.live_only)


def _label_rows() -> Iterator[str]:
    used = {label for row in ALL for label in row.labels}
    yield "| label | attribute | says |\n|---|---|---|\n"
    yield from (
        f"| `{name}` | `{LABELS[name][0]}` | {LABELS[name][1]} |\n" for name in LABELS if name in used
    )


def _alert_rows() -> Iterator[str]:
    yield "| alert | severity | when | what to do |\n|---|---|---|---|\n"
    for alert in alerts():
        when = expression(alert["expr"], choices=False).replace("|", "\\|")
        cells = (f"`{alert['alert']}`", alert["severity"], f"`{when}` for {alert['for']}", alert["action"])
        yield f"| {' | '.join(cells)} |\n"


def written() -> dict[str, str]:
    """Every file and what is in it."""
    assert all(row.name.startswith(PREFIX) for row in ALL)
    return {DASHBOARD: dashboard(), RULES: rules(), PAGE: page()}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for name, text in written().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
