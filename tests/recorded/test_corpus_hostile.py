"""A real recording with values nobody would write: an answer, or a clear error, never a traceback."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.corpus.kept import FOLDER, database
from ingero.errors import IngeroError
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range

HOSTILE = (
    "UPDATE thread_second SET host_cpu_ns = 9000000000000000000 WHERE feeder > 0 AND id % 5 = 0",
    "UPDATE thread_second SET gpu_wait_ns = 8000000000000000000 WHERE feeder > 0",
    "UPDATE thread_second SET host_cpu_ns = -5000000000 WHERE feeder > 0",
    "UPDATE thread_second SET host_cpu_ns = 'x' WHERE feeder > 0",
    "UPDATE thread_second SET host_cpu_ns = 1e300 WHERE feeder > 0",
    "UPDATE thread_second SET host_cpu_ns = 9e999 WHERE feeder > 0",
    "DELETE FROM thread_second WHERE id % 3 = 0",
    "UPDATE operation_second SET count = 'x'",
    "UPDATE operation_second SET count = -count",
    "UPDATE operation_second SET count = 9000000000000000000",
    "UPDATE operation_second SET count = 9e999",
    "UPDATE operation_second SET exact = 'x'",
    "UPDATE operation_second SET exact = -7",
    "UPDATE operation_second SET op_id = 9000000000000000000",
    "UPDATE operation_second SET start_ns = start_ns + 0.5",
    "UPDATE gpu_sample SET gpu_share = 9e999",
    "UPDATE gpu_sample SET gpu_share = -9e999",
    "UPDATE gpu_sample SET gpu_share = 'abc'",
    "UPDATE gpu_sample SET gpu_share = 1e300",
    "UPDATE gpu_sample SET gpu_share = -50",
    "UPDATE gpu_sample SET gpu_share = NULL",
    "UPDATE thread_sample SET bucket = 99",
    "UPDATE thread_sample SET bucket = -1",
    "UPDATE thread_sample SET count = -3",
    "UPDATE process SET end_ns = 'x'",
    "UPDATE process SET start_ns = 'x'",
)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with database(FOLDER / "card" / "hogs-medium.json") as db:
        return db.read_bytes()


@pytest.mark.parametrize("statement", HOSTILE)
def test_values_that_make_no_sense_end_in_an_answer_or_an_error(
    statement: str, recording: bytes, tmp_path: Path
) -> None:
    db = tmp_path / "hostile.db"
    db.write_bytes(recording)
    with closing(sqlite3.connect(db)) as connection:
        connection.execute(statement)
        connection.commit()
    try:
        report = get_report(db, Range())
    except IngeroError:
        return
    assert all(each.gpu_busy_share is None or 0 <= each.gpu_busy_share <= 1 for each in report.bound)
