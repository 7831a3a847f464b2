"""Pods, namespaces, jobs and users: everything that can be narrowed is narrowed to the same processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.errors import TargetError
from ingero.model.window import Container
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Limits, Range, ask_sql, ask_statistics
from ingero.serve.answers.whose import Whose, require_pids
from ingero.serve.cli.main import main
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, fixed_clock, operation, process, thread, window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two pods of one name in two namespaces, and a Slurm job without a container."""
    path = tmp_path / "a.db"
    containers = [
        Container(5, "/kubepods/a", "a" * 64, "containerd", "trainer-0", "team-a", None,
                  (("name", "trainer"), ("owner", "Job/train"))),
        Container(6, "/kubepods/b", "b" * 64, "containerd", "trainer-0", "team-b", None),
        Container(7, "/slurm/uid_0/job_4711/step_0", job="4711.0"),
    ]  # fmt: skip
    labels = (("account", "physics"), ("job", "4711"), ("slurm.step", "0"), ("user", "ada"))
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        writer.write(
            window(
                0,
                containers=containers,
                processes=[
                    process(100, cgroup_id=5),
                    process(200, cgroup_id=6),
                    process(300, cgroup_id=7, labels=labels),
                ],
                operations=[operation(pid=pid) for pid in (100, 200, 300)],
                threads=[thread(pid=pid, tid=pid, host_cpu=SECOND) for pid in (100, 200, 300)],
            )
        )
    return path


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
    report = get_report(path, Range(), now_ns=2**62, whose=Whose(**words))
    assert {each.pid for each in report.processes} == pids


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
    ]
