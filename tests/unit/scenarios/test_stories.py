"""Every made-up scenario: consistent as real windows are, and diagnosed as what it is."""

from __future__ import annotations

import json
import sqlite3
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.model.finding import Severity
from ingero.model.layout import Bucket
from ingero.model.report import Report
from ingero.model.sites import SAMPLE_NS
from ingero.model.window import Window
from ingero.scenarios import demo, synthetic
from ingero.scenarios.catalogue import ALL, BY_NAME
from ingero.scenarios.scenario import SECOND, Scenario
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.serve.cli.demo import SCENARIOS
from ingero.serve.cli.surfaces import QuietSurface
from ingero.store.reader import Reader

every_scenario = pytest.mark.parametrize("scenario", ALL, ids=lambda each: each.name)


def made(name: str, seed: int = 7) -> list[Window]:
    return list(synthetic.windows(BY_NAME[name].story, seed, 5 * SECOND))


made_once = cache(made)


def windows(scenario: Scenario) -> list[Window]:
    """To look at, not to change."""
    return made_once(scenario.name)


def reported(scenario: Scenario, seed: int, db: Path) -> Report:
    assert demo.run(demo.Played(scenario, db, seed, 1e6), QuietSurface(), LiveDiagnosis) == 0
    return get_report(db, Range())


def test_the_command_offers_every_scenario() -> None:
    assert tuple(each.name for each in ALL) == SCENARIOS


@every_scenario
@pytest.mark.parametrize("seed", [1, 7, 12345])
def test_the_diagnosis_begins_with_what_was_shown_and_says_nothing_else(
    scenario: Scenario, seed: int, tmp_path: Path
) -> None:
    report = reported(scenario, seed, tmp_path / "demo.db")
    first = report.findings[0]
    assert (first.kind, first.victim.pid) == (scenario.finding, synthetic.TRAINER)
    others = [each.kind for each in report.findings if each.severity is not Severity.LOW]
    assert set(others) <= {scenario.finding}
    assert report.unexplained == []
    assert report.losses == []


def test_the_incident_names_who_took_the_cores_and_when(tmp_path: Path) -> None:
    report = reported(BY_NAME["incident"], 7, tmp_path / "demo.db")
    (finding,) = report.findings
    assert finding.causes[0].who[0].comm == "stress-ng-cpu"
    assert finding.first_ns - report.window.from_ns == pytest.approx(8 * SECOND, abs=2 * SECOND)
    assert finding.last_ns - finding.first_ns == pytest.approx(8 * SECOND, abs=2 * SECOND)
    effect = finding.effect
    assert effect.usual_ns is not None
    assert effect.now_ns is not None
    longer = 1 - effect.usual_ns / effect.now_ns
    assert effect.wall_share == pytest.approx(longer, abs=0.05)  # lost is what iterations got longer


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("incident", "augment /workspace/train.py:41"),
        ("memcpy-bottleneck", "to_device /workspace/train.py:48"),
        ("periodic-spike", "write_metrics /workspace/train.py:84"),
        ("cold-start", "Model.warm_up /workspace/train.py:33"),
    ],
)
def test_the_diagnosis_names_the_line(name: str, line: str, tmp_path: Path) -> None:
    finding = reported(BY_NAME[name], 7, tmp_path / "demo.db").findings[0]
    assert finding.source is not None
    assert f"{finding.source.function} {finding.source.file}:{finding.source.line}" == line
    assert finding.stack[-1].function == "<module>"


def test_the_line_stays_when_the_detail_is_gone(tmp_path: Path) -> None:
    """Retention drops single calls first: the finding stored meanwhile still knows its line."""
    db = tmp_path / "demo.db"
    before = reported(BY_NAME["memcpy-bottleneck"], 7, db).findings[0]
    with sqlite3.connect(db) as connection:
        for table in ("stack", "thread_sample"):
            connection.execute(f"DELETE FROM {table}")
    after = get_report(db, Range()).findings[0]
    assert before.source is not None
    assert (after.source, after.stack) == (before.source, before.stack)


@every_scenario
def test_every_call_and_wait_has_a_stack_that_was_told(scenario: Scenario) -> None:
    told = {0}
    for window in windows(scenario):
        told |= {stack.hash for stack in window.stacks}
        assert len(window.call_stacks) == len(window.calls)
        assert len(window.wait_stacks) == len(window.waits)
        assert 0 not in window.call_stacks
        assert {*window.call_stacks, *window.wait_stacks, *window.samples["stack_hash"]} <= told


@every_scenario
def test_samples_are_as_many_as_the_time_on_a_core(scenario: Scenario) -> None:
    seen: dict[int, int] = {}
    spent: dict[int, int] = {}
    for window in windows(scenario):
        for row in window.samples[window.samples["bucket"] == Bucket.HOST_CPU]:
            seen[int(row["tid"])] = seen.get(int(row["tid"]), 0) + int(row["count"])
        for row in window.threads:
            spent[int(row["tid"])] = spent.get(int(row["tid"]), 0) + int(row["ns"][Bucket.HOST_CPU])
    for tid, ns in spent.items():
        assert seen.get(tid, 0) * SAMPLE_NS == pytest.approx(ns, rel=0.25, abs=SECOND // 4)


def test_a_start_is_kept_apart_as_low(tmp_path: Path) -> None:
    report = reported(BY_NAME["cold-start"], 7, tmp_path / "demo.db")
    assert [(each.kind, each.severity) for each in report.findings] == [("cold-start", Severity.LOW)]


@every_scenario
def test_time_is_accounted_in_every_second(scenario: Scenario) -> None:
    for window in windows(scenario):
        threads = window.threads
        assert (threads["ns"].sum(axis=1) == SECOND).all()
        assert (threads["gap"] <= threads["ns"]).all()
        assert (threads["late_ns"] <= threads["ns"][:, Bucket.RUNQUEUE]).all()
        for row in threads:
            taken = window.culprits["ns"][window.culprits["victim_tid"] == row["tid"]].sum()
            waited = int(row["ns"][Bucket.RUNQUEUE])
            assert taken == waited or waited <= 1_000_000
            ended = window.wakers["ns"][window.wakers["tid"] == row["tid"]].sum()
            assert ended == row["ns"][Bucket.PEER_WAIT]


@every_scenario
def test_calls_add_up_and_end_within_their_second(scenario: Scenario) -> None:
    for window in windows(scenario):
        calls, operations = window.calls, window.operations
        assert (calls["split"].sum(axis=1) == calls["duration_ns"]).all()
        assert (calls["h"]["start_ns"] + calls["duration_ns"] <= window.end_ns).all()
        assert (operations["split"].sum(axis=1) == operations["sum_ns"]).all()
        assert (operations["slots"].sum(axis=1) == operations["count"]).all()
        for row in operations:
            mine = calls[(calls["op"] == row["op"]) & (calls["h"]["pid"] == row["pid"])]
            assert (len(mine), mine["weight"].sum()) == (row["recorded"], row["count"])


@every_scenario
def test_no_call_gets_lost_between_two_seconds(scenario: Scenario) -> None:
    """Time inside CUDA calls is what the calls took, but for those open at a boundary."""
    inside = spent = 0
    for window in windows(scenario):
        feeders = window.threads[window.threads["feeder"]]
        inside += int(window.operations["split"][:, Bucket.CUDA_CPU].sum())
        spent += int(feeders["ns"][:, Bucket.CUDA_CPU].sum())
    assert inside == pytest.approx(spent, abs=SECOND // 10)


@every_scenario
def test_everybody_named_was_introduced_with_a_parent(scenario: Scenario) -> None:
    known: dict[int, int | None] = {}
    for window in windows(scenario):
        for process in (*window.processes, *window.bystanders):
            known[process.pid] = process.parent_pid
        named = {*window.threads["pid"], *window.culprits["pid"], *window.wakers["waker_pid"]}
        assert {int(pid) for pid in named} <= set(known)
    assert None not in known.values()


def test_two_seeds_differ_and_one_is_always_the_same() -> None:
    def durations(seed: int) -> list[int]:
        calls = [window.calls["duration_ns"] for window in made("incident", seed)]
        return [int(ns) for ns in np.concatenate(calls)]

    assert durations(3) == durations(3)
    assert durations(3) != durations(4)


def test_a_finding_has_the_same_id_in_sql_as_in_the_diagnosis(tmp_path: Path) -> None:
    """Also of a second recording in the same file, of a process with the same number."""
    db = tmp_path / "demo.db"
    first = reported(BY_NAME["incident"], 7, db).findings
    time.sleep(1)  # an id tells recordings apart by the second they began
    both = reported(BY_NAME["incident"], 8, db).findings
    told = {each.id: each for each in (*first, *both)}
    with Reader(db) as reader:
        rows = reader.rows("SELECT id, node, kind, pid, json FROM findings")
    assert len(rows) == 2
    assert {row[0] for row in rows} == set(told)
    for name, node, kind, pid, text in rows:
        known = told[name]
        assert (node, kind, pid, json.loads(text)["id"]) == (known.node, known.kind, known.victim.pid, name)
