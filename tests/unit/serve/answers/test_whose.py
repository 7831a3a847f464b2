"""Pods, namespaces, jobs and users: everything that can be narrowed is narrowed to the same processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingero.errors import TargetError, UsageError
from ingero.model.window import Annotation
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.flame import get_flame
from ingero.serve.answers.graphs import get_graphs
from ingero.serve.answers.heatmap import get_heatmap
from ingero.serve.answers.labels import Labels, parse_labels
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Limits, Range, ask_by_label, ask_sql, ask_statistics
from ingero.serve.answers.stacks import get_stacks
from ingero.serve.answers.whose import TenantsAnswer, Whose, get_tenants, require_pids
from ingero.serve.answers.zoom import get_zoom
from ingero.serve.cli.main import main
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, fixed_clock, operation, process, window
from tests.three_tenants import LAUNCH_NS, SLURM, TEAM_A, TEAM_B, record

OPS = ("cudaLaunchKernel", "cudaGraphLaunch")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record(tmp_path / "a.db")


@pytest.mark.parametrize(
    "words, pids",
    [
        ({"namespace": "team-a"}, {100}),
        ({"pod": "trainer-0"}, {100, 200}),
        ({"pod": "team-b/trainer-0"}, {200}),
        ({"pod": "trainer-0", "namespace": "team-a"}, {100}),
        ({"job": "4711"}, {300}),
        ({"job": "4711.0"}, {300}),
        ({"user": "ada"}, {300}),
        ({"container": "aaaa"}, {100}),
        ({"container": "trainer"}, {100}),
    ],
)
def test_statistics_and_diagnosis_are_of_the_same_processes(
    path: Path, words: dict[str, str], pids: set[int]
) -> None:
    operations = ask_statistics(path, Range(), Filters(**words), 10).operations
    assert {pid for each in operations for pid in each.pids} == pids
    whose = Whose(**words)
    report = get_report(path, Range(), now_ns=2**62, whose=whose)
    assert {each.pid for each in report.processes} == pids
    stacks = get_stacks(path, Range(), whose=whose).stacks
    assert {each.source.line for each in stacks if each.source} == pids
    roots = get_flame(path, Range(), whose=whose).root.children
    assert {each.name for each in roots} == {f"python ({pid}) on n" for pid in pids}
    graphs = get_graphs(path, Range(), whose=whose)
    assert {each.pid for each in graphs.launched} == {each.pid for each in graphs.processes} == pids
    heat = get_heatmap(path, Range(), Filters(**words)).operations
    assert {each.op: each.count for each in heat} == dict.fromkeys(OPS, len(pids))
    tracks = get_zoom(path, Range(), whose=whose).tracks
    assert {each.pid for each in tracks if each.pid is not None} == pids


def test_tables_are_exported_of_one_tenant_and_timelines_say_that_they_are_not(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--format", "csv", "--table", "operations", "--job", "4711", "-d", str(path)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    at = header.split(",").index("pid")
    assert {row.split(",")[at] for row in rows} == {"300"}
    assert main(["export", "--format", "perfetto", "--job", "4711", "-d", str(path)]) == 2
    assert "--job is for csv and parquet" in capsys.readouterr().err


def test_a_job_is_no_beginning_of_another_one(path: Path) -> None:
    with Reader(path) as reader, pytest.raises(TargetError) as caught:
        require_pids(reader, Whose(job="471"))
    assert "no job '471'" in caught.value.message
    assert "4711" in caught.value.hint


def test_a_name_nobody_has_is_an_error_that_says_who_is_there(path: Path) -> None:
    with pytest.raises(TargetError) as caught:
        get_report(path, Range(), now_ns=2**62, whose=Whose(namespace="team-c"))
    assert "team-a, team-b" in caught.value.hint
    with pytest.raises(TargetError, match="matches all of these"):
        get_report(path, Range(), now_ns=2**62, whose=Whose(namespace="team-a", user="ada"))


def test_one_view_has_it_all(path: Path) -> None:
    sql = "SELECT pid, namespace, pod, container, owner, job, user, account FROM tenants ORDER BY pid"
    rows = [tuple(row.values()) for row in ask_sql(path, sql, Limits()).rows]
    assert rows == [
        (100, "team-a", "trainer-0", "trainer", "Job/train", None, None, None),
        (200, "team-b", "trainer-0", None, None, None, None, None),
        (300, None, None, None, None, "4711", "ada", "physics"),
        (400, None, None, None, None, None, None, None),
    ]


# --- grouping -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "by, groups",
    [
        ("namespace", {"team-a": {100}, "team-b": {200}, "(none)": {300, 400}}),
        ("pod", {"team-a/trainer-0": {100}, "team-b/trainer-0": {200}, "(none)": {300, 400}}),
        ("job", {"4711": {300}, "(none)": {100, 200, 400}}),
        ("user", {"ada": {300}, "(none)": {100, 200, 400}}),
        ("container", {"a" * 12: {100}, "b" * 12: {200}, "(none)": {300, 400}}),
        ("node", {"n": {100, 200, 300, 400}}),
    ],
)
def test_calls_are_grouped_by_tenant_and_sum_to_those_of_everybody(
    path: Path, by: str, groups: dict[str, set[int]]
) -> None:
    values = ask_by_label(path, Range(), Filters(), 10, None, Labels(by=by)).values
    assert {each.value: set(each.pids) for each in values} == groups
    for each in values:
        assert {row.op: row.sum_ns for row in each.operations} == dict.fromkeys(
            OPS, sum(LAUNCH_NS[pid] for pid in each.pids)
        )
    together = ask_statistics(path, Range(), Filters(), 10).operations
    apart = [row for each in values for row in each.operations]
    assert sum(row.count for row in apart) == sum(row.count for row in together) == 8
    assert sum(row.sum_ns for row in apart) == sum(row.sum_ns for row in together)


def test_a_share_is_of_the_time_that_processes_of_theirs_were_there(path: Path) -> None:
    values = ask_by_label(path, Range(), Filters(), 10, None, Labels(by="namespace")).values
    held = {each.value: each.held_ns for each in values}
    assert held == {"team-a": SECOND, "team-b": SECOND // 2, "(none)": SECOND}
    (team_b,) = (each for each in values if each.value == "team-b")
    assert {row.wall_share for row in team_b.operations} == {7_000 / (SECOND // 2)}
    assert [each.value for each in values][-1] == "team-b"  # longest first


def test_groups_are_narrowed_like_everything_else(path: Path) -> None:
    filters = Filters(namespace="team-b", op="cudaLaunchKernel")
    (value,) = ask_by_label(path, Range(), filters, 10, None, Labels(by="pod")).values
    assert (value.value, value.pids, [row.op for row in value.operations]) == (
        "team-b/trainer-0",
        (200,),
        ["cudaLaunchKernel"],
    )
    assert len(ask_by_label(path, Range(), Filters(), 2, None, Labels(by="namespace")).values) == 2


def test_a_label_that_a_job_reported_under_that_name_comes_first(tmp_path: Path) -> None:
    said = record(tmp_path / "b.db", said=(Annotation(TEAM_A, 0, "user", "eve"),))
    (value,) = ask_by_label(said, Range(), Filters(), 10, None, Labels(by="user")).values
    assert (value.value, value.pids) == ("eve", (TEAM_A,))


def test_tenants_are_grouped_while_a_label_held(tmp_path: Path) -> None:
    labels = [Annotation(pid, 0, "step", "1") for pid in (TEAM_A, SLURM)]
    said = record(tmp_path / "c.db", said=(*labels, Annotation(TEAM_B, 0, "step", "2")))
    asked = parse_labels(["step=1"], "namespace")
    values = ask_by_label(said, Range(), Filters(), 10, None, asked).values
    assert {each.value: set(each.pids) for each in values} == {"team-a": {TEAM_A}, "(none)": {SLURM}}


def test_a_group_that_nobody_is_in_is_an_error_that_says_so(tmp_path: Path) -> None:
    bare = tmp_path / "bare.db"
    with Writer(bare, "n", fixed_clock(), OPERATIONS) as writer:
        writer.write(window(operations=[operation()], processes=[process()]))
    with pytest.raises(TargetError, match="no namespace is known in this recording"):
        ask_by_label(bare, Range(), Filters(), 10, None, Labels(by="namespace"))
    with pytest.raises(UsageError, match="no job said its step in that time"):
        ask_by_label(bare, Range(), Filters(), 10, None, Labels(by="step"))


def test_the_command_prints_a_group_for_each(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["query", "--by", "namespace", "-d", str(path)]
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {each["value"] for each in answer["values"]} == {"team-a", "team-b", "(none)"}
    assert main([*words, "--format", "csv"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith("namespace,held_ns,")
    assert len(rows) == 6
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "by namespace, longest first" in table
    assert "team-a" in table
    assert main(["explain", "--by", "namespace", "-d", str(path)]) == 2
    assert "`ingero query --by namespace`" in capsys.readouterr().err


def test_names_to_ask_by_are_listed(path: Path) -> None:
    assert get_tenants(path) == TenantsAnswer(
        ["team-a", "team-b"], ["team-a/trainer-0", "team-b/trainer-0"], ["4711"], ["ada"]
    )
