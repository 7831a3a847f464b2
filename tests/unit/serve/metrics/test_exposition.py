"""What Prometheus is told parses, is bounded exactly and says what was counted."""

from __future__ import annotations

import gzip
import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ingero.model.metrics import BY_NAME, Distribution, Kind, SeriesPoint, Snapshot
from ingero.serve.answers.metrics import Meter
from ingero.serve.metrics.exposition import BOUNDS_S, SnapshotTexts, text
from tests.builders import OPERATIONS, fixed_clock, operation, process, window
from tests.unit.serve.answers.test_metrics import whole

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.mark.parametrize(
    ("accept", "parse"), [("", parse_text), ("text/plain", parse_text), (OPENMETRICS, parse_openmetrics)]
)
def test_every_series_parses_and_belongs_to_a_row(accept: str, parse: object) -> None:
    snapshot = whole().snapshot()
    body, content_type = text(snapshot, accept)
    families = {family.name: family for family in parse(body.decode())}  # type: ignore[operator]
    assert ("openmetrics" in content_type) == (accept == OPENMETRICS)
    assert set(families) == {BY_NAME[name].prometheus for name in snapshot.points}
    for name, points in snapshot.points.items():
        row = BY_NAME[name]
        samples = families[row.prometheus].samples
        assert families[row.prometheus].type == row.kind.value
        if row.kind is Kind.COUNTER:
            assert {sample.name for sample in samples} == {row.series}
        if row.kind is not Kind.HISTOGRAM:
            told = {tuple(sample.labels[label] for label in row.labels): sample.value for sample in samples}
            assert told == {point.labels: pytest.approx(point.value) for point in points}


def test_calls_lie_on_the_right_side_of_every_bound() -> None:
    edges_ns = [round(float(bound) * 1e9) for bound in BOUNDS_S]
    made = Meter(OPERATIONS, fixed_clock(), "n1")
    made.add(window(operations=[operation(durations_ns=[ns - 1 for ns in edges_ns] + edges_ns + [10**12])]))
    body, _ = text(made.snapshot(), "")
    (family,) = [f for f in parse_text(body.decode()) if f.name == "ingero_operation_duration_seconds"]
    told = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert told == {**{bound: 2 * at + 1 for at, bound in enumerate(BOUNDS_S)}, "+Inf": 2 * len(BOUNDS_S) + 1}
    (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
    assert count == 2 * len(BOUNDS_S) + 1


@pytest.mark.parametrize("name", ['"} 1\ningero_lie 7\n{x="', "back\\slash", "ünï", "\x00\x07", "{}", "#"])
def test_a_hostile_name_cannot_make_series_of_its_own(name: str) -> None:
    made = Meter(OPERATIONS, fixed_clock(), "n1")
    made.add(window(operations=[operation()], processes=[process(comm=name)]))
    snapshot = made.snapshot()
    for accept, parse in (("", parse_text), (OPENMETRICS, parse_openmetrics)):
        families = list(parse(text(snapshot, accept)[0].decode()))
        assert {family.name for family in families} <= {row.prometheus for row in BY_NAME.values()}
        (calls,) = [family for family in families if family.name == "ingero_operation_calls"]
        assert calls.samples[0].labels["process"] == snapshot.points["operation.calls"][0].labels[1]


def test_one_snapshot_is_written_once_however_many_ask() -> None:
    snapshots = [Snapshot(0, 0, "n1", {"events": [SeriesPoint((), n, 0)]}) for n in (1, 2)]
    texts = SnapshotTexts(lambda: snapshots[0])
    first, _ = texts.get("", packed=False)
    assert texts.get("", packed=False)[0] is first
    assert gzip.decompress(texts.get("", packed=True)[0]) == first
    snapshots.pop(0)
    assert b"ingero_events_total 2.0" in texts.get("", packed=False)[0]


def test_numbers_of_any_size_are_written() -> None:
    huge = Snapshot(
        0, 0, "n1", {"events": [SeriesPoint((), 2**70, 0)], "overhead": [SeriesPoint((), math.inf, 0)]}
    )
    assert not isinstance(huge.points["events"][0].value, Distribution)
    told = {family.name: family.samples[0].value for family in parse_text(text(huge, "")[0].decode())}
    assert told == {"ingero_events": float(2**70), "ingero_overhead_ratio": math.inf}


@pytest.mark.parametrize("version", ["1.0.x", "x", "1.", "", "0.0.1\x00"])
def test_a_version_that_is_none_gets_the_usual_text(version: str) -> None:
    texts = SnapshotTexts(lambda: Snapshot(2, 1, "n1"))
    body, _ = texts.get(f"application/openmetrics-text; version={version}", False)
    assert isinstance(body, bytes)
