"""One number wherever it is shown: answers, SQL, dashboard, assistants and metrics agree."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.corpus.kept import FOLDER, database
from ingero.config import Config
from ingero.errors import StoreError
from ingero.serve.answers.live import LiveTotals
from ingero.serve.answers.missing import losses_within
from ingero.serve.answers.operations import Filters, totals_by_process
from ingero.serve.answers.query import Range, StatisticsAnswer, ask_statistics
from ingero.serve.answers.recorded_metrics import recorded_metrics
from ingero.serve.answers.window import time_range
from ingero.serve.cli.main import main
from ingero.serve.dashboard import routes as q
from ingero.serve.dashboard.routes import ROUTES
from ingero.serve.dashboard.source import DashboardSource as Served
from ingero.serve.mcp.source import AssistantSource as Asked
from ingero.serve.mcp.tools import Tools
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from ingero.units import SECOND
from tests.builders import OPERATIONS, fixed_clock, window

KEPT = sorted(FOLDER.glob("*/*.json"))
SOME = KEPT[::16]  # a diagnosis takes a while: surfaces that make one are asked about these
CALLS = "SELECT layer, op, SUM(count) FROM operations GROUP BY layer, op"
ROWS = "SELECT layer, op, SUM(weight) FROM cuda_events GROUP BY layer, op"
Counts = Counter[tuple[str, str]]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.db"
    assert main(["demo", "--no-gpu", "--no-tui", "--speed", "10000", "-d", str(path)]) == 0
    return path


def answered(db: Path) -> StatisticsAnswer:
    return ask_statistics(db, Range(), Filters(), 10_000)


def counted(answer: StatisticsAnswer) -> Counts:
    found: Counts = Counter()
    for each in answer.operations:
        found[each.layer, each.op] += each.count
    return found


def by_sql(reader: Reader, sql: str) -> Counts:
    return Counter({(layer, op): count for layer, op, count in reader.rows(sql)})


@pytest.mark.parametrize("path", KEPT, ids=name_of)
def test_counts_agree_with_sql_with_rows_and_with_what_time_allows(path: Path) -> None:
    with database(path) as db, Reader(db) as reader:
        answer = answered(db)
        counts = counted(answer)
        assert counts == by_sql(reader, CALLS)
        rows = by_sql(reader, ROWS)
        for each in answer.operations:
            if each.exact and each.layer in ("runtime", "driver", "graph"):
                assert abs(rows[each.layer, each.op] - each.count) <= 1, each
        when = time_range(reader)
        totals: Counts = Counter()
        for _, layer, op, _, found in totals_by_process(reader, when, Filters()):
            totals[layer, op] += found.count
        assert totals == counts
        possible(reader, answer)
        lost = dict(reader.rows("SELECT reason, SUM(count) FROM losses GROUP BY reason"))
        assert {each.reason: each.count for each in answer.losses} == lost
        assert {each.reason: each.count for each in losses_within(reader, when.from_ns, when.to_ns)} == lost


def possible(reader: Reader, answer: StatisticsAnswer) -> None:
    """Calls of one thread do not overlap, and none takes less than a few nanoseconds."""
    threads = reader.rows("SELECT COUNT(DISTINCT tid) FROM events")[0][0] + len(
        reader.rows("SELECT DISTINCT pid, tid FROM thread_time")
    )
    most_ns = (answer.recorded_ns + 2 * SECOND) * max(threads, 1)
    for each in answer.operations:
        assert 0 <= each.count <= most_ns / 5, each
        assert 0 <= each.errors <= each.count, each
        if each.layer != "nccl":
            assert each.sum_ns <= most_ns * 1.1, each


def of_surfaces(db: Path) -> Iterator[tuple[str, Counts]]:
    route = next(each for each in ROUTES if each.path == "operations")
    yield "dashboard", counted(route.ask(Served(db), q.OfOperations(limit=10_000)))
    told: Counts = Counter()
    for each in Tools(Asked(db, Config())).get_trace_stats(limit=200)["operations"]:
        told[each["layer"], each["op"]] += int(str(each["calls"]).removeprefix("about ").split()[0])
    yield "assistants", told
    measured: Counts = Counter()
    for snapshot in recorded_metrics(db, Range()):
        for point in snapshot.points["operation.calls"]:
            measured[point.labels[-2], point.labels[-1]] += int(point.value)  # type: ignore[arg-type]
    yield "metrics", measured


@pytest.mark.parametrize("path", SOME, ids=name_of)
def test_surfaces_agree_on_kept_recordings(path: Path) -> None:
    with database(path) as db:
        expected = counted(answered(db))
        for surface, counts in of_surfaces(db):
            assert counts == expected, surface


def test_surfaces_and_rows_agree_on_a_recording_of_this_version(demo: Path) -> None:
    expected = counted(answered(demo))
    assert sum(expected.values()) > 10_000
    for surface, counts in of_surfaces(demo):
        assert counts == expected, surface
    with Reader(demo) as reader:
        rows = by_sql(reader, ROWS)
    assert rows == Counter({key: count for key, count in expected.items() if key[0] != "nccl"})


def test_more_calls_than_time_allows_are_no_answer_but_an_error(demo: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(demo.read_bytes())
    with closing(sqlite3.connect(damaged)) as connection:
        for table in ("operation_second", "operation_minute"):
            connection.execute(f"UPDATE {table} SET count = 54000000000000")
        connection.commit()
    with pytest.raises(StoreError, match="cannot be right"):
        answered(damaged)


def test_every_loss_of_the_status_line_is_in_the_answer(tmp_path: Path) -> None:
    reasons = {
        reason: number for number, reason in enumerate(("ring_call", "stack_corrupt", "process_full"), 1)
    }
    totals = LiveTotals(OPERATIONS, "n")
    with Writer(tmp_path / "x.db", "n", fixed_clock(), OPERATIONS) as writer:
        for number in range(3):
            each = window(number * SECOND, losses=dict(reasons))
            totals.add(each)
            writer.write(each)
        view = totals.view(0, 3 * SECOND)
    assert view.losses == {reason: 3 * count for reason, count in reasons.items()}
    answer = answered(tmp_path / "x.db")
    assert {each.reason: each.count for each in answer.losses} == {**view.losses, **writer.dropped}
