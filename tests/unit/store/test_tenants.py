"""SQL that people know from articles: runs as printed, and gives the numbers it says it gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.model.window import Container
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import STORED_ROWS, Limits, Range, ask_sql, ask_statistics
from ingero.store.merge.result import merge
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, call, fixed_clock, operation, process, window

# As printed.
BY_KERNEL = """\
-- top-N cuda kernels by total time per container
SELECT container_id,
       kernel_name,
       COUNT(*)                AS launches,
       SUM(duration_ns)/1e6    AS total_ms
  FROM cuda_events e
  JOIN containers  c ON c.cgroup_id = e.cgroup_id
 GROUP BY container_id, kernel_name
 ORDER BY total_ms DESC
 LIMIT 20;
"""
BY_COLLECTIVE = """\
-- per-tenant NCCL cost
SELECT container_id,
       op,
       COUNT(*)                AS calls,
       AVG(duration_ns)/1e6    AS avg_ms,
       MAX(duration_ns)/1e6    AS p100_ms
  FROM nccl_events e
  JOIN containers  c ON c.cgroup_id = e.cgroup_id
 GROUP BY container_id, op;
"""
CALLS = BY_KERNEL.replace("COUNT(*)     ", "SUM(weight)").replace(
    "SUM(duration_ns)", "SUM(duration_ns * weight)"
)


def record(
    path: Path, node: str, tenants: dict[int, str], weight: int = 1, calls: int = 3, at_s: int = 0
) -> Path:
    with Writer(path, node, fixed_clock(), OPERATIONS) as writer:
        for number, (cgroup, container) in enumerate(tenants.items(), at_s):
            pid = 100 + number
            writer.write(
                window(
                    number * SECOND,
                    calls=[
                        call(
                            "cudaFree",
                            at_ns=number * SECOND,
                            pid=pid,
                            cgroup_id=cgroup,
                            took_ns=1000,
                            weight=weight,
                        )
                    ]
                    * calls,
                    operations=[operation("cudaFree", [1000] * calls * weight, pid=pid)],
                    processes=[process(pid=pid, cgroup_id=cgroup)],
                    containers=[Container(cgroup, f"/kube/{container}", container)],
                )
            )
    return path


def asked(path: Path, sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in ask_sql(path, sql, Limits()).rows]


def test_equal_cgroup_numbers_of_two_nodes_do_not_double_rows(tmp_path: Path) -> None:
    parts = [
        record(tmp_path / "a.db", "node-a", {7: "aaa", 8: "bbb"}),
        record(tmp_path / "b.db", "node-b", {7: "ccc", 9: "ddd"}, calls=5),
    ]
    merge(parts, tmp_path / "out.db")
    each = asked(parts[0], BY_KERNEL) + asked(parts[1], BY_KERNEL)
    assert sorted(asked(tmp_path / "out.db", BY_KERNEL)) == sorted(each)
    assert asked(tmp_path / "out.db", "SELECT COUNT(*), COUNT(DISTINCT cgroup_id) FROM containers") == [
        (4, 4)
    ]


def test_a_number_that_only_another_node_has_a_container_for_is_not_taken_for_it(tmp_path: Path) -> None:
    bare = record(tmp_path / "b.db", "node-b", {7: "ccc"})
    with Writer(tmp_path / "b2.db", "node-b", fixed_clock(), OPERATIONS) as writer:
        writer.write(
            window(0, calls=[call("cudaFree", pid=5, cgroup_id=7)], processes=[process(pid=5, cgroup_id=7)])
        )
    merge([record(tmp_path / "a.db", "node-a", {7: "aaa"}), tmp_path / "b2.db"], tmp_path / "out.db")
    assert asked(tmp_path / "out.db", BY_KERNEL) == asked(tmp_path / "a.db", BY_KERNEL)
    assert asked(bare, BY_KERNEL)[0][0] == "ccc"


def test_a_later_recording_of_a_node_has_the_same_number_as_the_earlier_one(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a.db", "a", {7: "aaa"}), record(tmp_path / "b.db", "b", {7: "ccc"})
    merge([a, b], tmp_path / "both.db")
    more = record(tmp_path / "more.db", "b", {7: "ccc"}, calls=2, at_s=60)
    merge([tmp_path / "both.db", more], tmp_path / "all.db")
    assert asked(tmp_path / "all.db", "SELECT COUNT(*) FROM containers") == [(2,)]
    assert sorted(row[:3] for row in asked(tmp_path / "all.db", BY_KERNEL)) == [
        ("aaa", None, 3),
        ("ccc", None, 5),
    ]


def test_the_query_of_the_article_runs_and_its_count_of_stored_rows_is_said_to_be_one(tmp_path: Path) -> None:
    path = record(tmp_path / "a.db", "a", {7: "aaa"}, weight=20)
    answer = ask_sql(path, BY_KERNEL, Limits())
    assert answer.rows == [{"container_id": "aaa", "kernel_name": None, "launches": 3, "total_ms": 0.003}]
    assert answer.notes == [STORED_ROWS]
    assert asked(path, BY_COLLECTIVE) == []
    made = ask_sql(path, CALLS, Limits())
    (stats,) = ask_statistics(path, Range(), Filters(), 10).operations
    assert made.rows == [
        {"container_id": "aaa", "kernel_name": None, "launches": stats.count, "total_ms": 0.06}
    ]
    assert made.notes == []


@pytest.mark.parametrize(
    ("sql", "noted"),
    [
        ("SELECT COUNT(*) FROM events", True),
        ("SELECT count ( 1 ) FROM (SELECT op FROM calls WHERE pid = 100)", True),
        ("WITH e AS (SELECT op, duration FROM events) SELECT op, AVG(duration) FROM e GROUP BY op", True),
        ("SELECT SUM(weight) FROM cuda_events", False),
        ("SELECT SUM(count) FROM operations", False),
        ("SELECT op, duration FROM events", False),
        ("SELECT COUNT(*) FROM processes", False),
        ("SELECT 'COUNT(*) FROM events'", False),
    ],
)
def test_only_sums_over_sampled_rows_get_the_note(tmp_path: Path, sql: str, noted: bool) -> None:
    sampled = record(tmp_path / "sampled.db", "a", {7: "aaa"}, weight=20)
    whole = record(tmp_path / "whole.db", "a", {7: "aaa"})
    assert bool(ask_sql(sampled, sql, Limits()).notes) == noted
    assert ask_sql(whole, sql, Limits()).notes == []
