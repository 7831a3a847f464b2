"""What tracing cost and what was watched less is stored, shown, and kept by merging."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ingero.model.window import GovernorAction
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.store.merge.result import merge
from ingero.store.recording import connect
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, operation, thread, window

ACTION = GovernorAction(
    SECOND // 2, "launches", "all the time", "12.0 % of the time", "would take 20 %", 0.12
)


def estimated():
    row = operation("cuLaunchKernel", durations_ns=(5000,) * 50)
    row["count"], row["estimated"], row["count_error"] = 500, True, 40
    return row


def recorded(path: Path, node: str = "a") -> Path:
    with Writer(path, node, FakeTime().clock(), OPERATIONS) as writer:
        writer.note({}, 1500.0, 0.02)
        for at, share in enumerate((0.05, 0.01, 0.012)):
            told = window(
                at * SECOND,
                operations=[estimated(), operation("cudaStreamSynchronize", durations_ns=(900,))],
                threads=[thread(cuda_cpu=SECOND // 2, host_cpu=SECOND // 2, estimated_ns=SECOND // 4)],
                overhead_share=share,
                watched_share=1.0 if at == 0 else 0.1,
                actions=[ACTION] if at == 0 else [],
                hits=100,
            )
            assert writer.write(told) == ""
    return path


def rows(path: Path, sql: str) -> list[tuple]:
    with sqlite3.connect(path) as connection:
        return connection.execute(sql).fetchall()


def test_what_was_done_is_stored_with_its_reason(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.db")
    assert rows(path, "SELECT what, before, after, why, watched_share FROM governor_actions") == [
        ("launches", "all the time", "12.0 % of the time", "would take 20 %", 0.12)
    ]
    assert rows(path, "SELECT share, watched_share FROM overhead ORDER BY bucket_start_ns") == [
        (0.05, 1.0), (0.01, 0.1), (0.012, 0.1),
    ]  # fmt: skip
    assert rows(path, "SELECT SUM(ns) FROM thread_estimates") == [(3 * SECOND // 4,)]


def test_estimated_counts_are_marked_and_carry_their_error(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.db")
    found = rows(path, "SELECT DISTINCT op, count, exact, count_error FROM operations ORDER BY op")
    assert found == [("cuLaunchKernel", 500, 0, 40), ("cudaStreamSynchronize", 1, 1, 0)]


def test_a_report_says_what_was_watched_less(tmp_path: Path) -> None:
    report = get_report(recorded(tmp_path / "a.db"), Range())
    assert report.overhead.budget == 0.02
    assert round(report.overhead.share or 0, 6) == 0.024
    assert round(report.overhead.watched_share or 0, 6) == 0.4
    assert [(act.what, act.after) for act in report.overhead.actions] == [("launches", "12.0 % of the time")]
    [less] = [each for each in report.not_watched if "cuLaunchKernel" in each.what]
    assert "40.0 % of the time" in less.why
    assert report.processes[0].estimated_ns == 3 * SECOND // 4
    assert report.losses == []


def test_merging_keeps_it_by_node(tmp_path: Path) -> None:
    sources = [recorded(tmp_path / "a.db", "a"), recorded(tmp_path / "b.db", "b")]
    merge(sources, tmp_path / "both.db")
    for view in ("overhead", "governor_actions", "thread_estimates"):
        counts = dict(rows(tmp_path / "both.db", f"SELECT node, COUNT(*) FROM {view} GROUP BY node"))
        assert counts["a"] == counts["b"] > 0


def test_a_database_from_before_gets_the_tables_when_it_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = connect(path)
    for view in ("overhead", "governor_actions", "thread_estimates"):
        connection.execute(f"DROP VIEW {view}")
    for table in ("overhead_second", "governor_action", "thread_estimate"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("DELETE FROM migration WHERE name = '0003-governor'")
    connection.close()
    recorded(path)
    assert rows(path, "SELECT COUNT(*) FROM governor_actions") == [(1,)]
