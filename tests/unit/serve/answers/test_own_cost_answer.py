"""The whole bill of tracing, from a recording."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ingero.serve.answers.explain import get_report
from ingero.serve.answers.own_cost import own_cost_words
from ingero.serve.answers.query import Range
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import (
    OPERATIONS,
    SECOND,
    call,
    culprit,
    fixed_clock,
    operation,
    process,
    records,
    thread,
    window,
)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    with Writer(path, "n", fixed_clock(), OPERATIONS, cores=4) as writer:
        for number in range(3):
            writer.write(
                window(
                    number * SECOND,
                    calls=call("cudaFree", at_ns=number * SECOND),
                    operations=operation("cudaFree"),
                    threads=thread(gpu_wait=SECOND),
                    culprits=records(
                        culprit(pid=os.getpid(), comm="ingero itself", ns=SECOND // 50),
                        culprit(ns=SECOND // 4),
                    ),
                    processes=[process()] if number == 0 else [],
                    agent_cpu_ns=SECOND // 20,
                    switches=10_000,
                    switches_ns=4_000_000,
                )
            )
    return path


def test_the_answer_has_what_the_agent_took_from_whom(db: Path) -> None:
    cost = get_report(db, Range()).overhead
    assert cost.agent_cpu_share == pytest.approx(0.05)
    assert cost.taken_from_job_share == pytest.approx(0.02)
    assert cost.bystanders_share == pytest.approx(0.001)
    assert cost.switches_per_s == pytest.approx(10_000)
    assert own_cost_words(cost) == (
        "ingero itself used 5.0 % of one core,"
        " made the job wait for a core 2.0 % of its time,"
        " cost other programs 0.1 % of all cores"
    )
    with Reader(db) as reader:
        assert reader.rows("SELECT SUM(agent_cpu_ns), SUM(switches), SUM(switches_ns) FROM own_cost") == [
            (3 * SECOND // 20, 30_000, 12_000_000)
        ]
        assert reader.rows("SELECT SUM(ns) FROM culprits WHERE comm = 'ingero itself'") == [
            (3 * SECOND // 50,)
        ]


def test_a_recording_without_an_agent_has_no_cost_of_one(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("UPDATE window SET agent_cpu_ns = 0")
        connection.execute("DELETE FROM switch_second")
        connection.commit()
    cost = get_report(db, Range()).overhead
    assert (cost.agent_cpu_share, cost.taken_from_job_share, cost.bystanders_share) == (None, None, None)
    assert own_cost_words(cost) == ""


def test_a_recording_of_before_is_read_and_what_it_does_not_know_is_not_known(db: Path) -> None:
    with closing(sqlite3.connect(db)) as before:
        before.execute("DROP VIEW own_cost")
        before.execute("DROP TABLE switch_second")
        before.execute("DELETE FROM migration WHERE name = '0009-own-cost'")
        before.commit()
    cost = get_report(db, Range()).overhead
    assert cost.agent_cpu_share == pytest.approx(0.05)
    assert (cost.bystanders_share, cost.switches_per_s) == (None, None)
    with Reader(db) as reader:
        assert reader.rows("SELECT COUNT(*), COUNT(switches) FROM own_cost") == [(3, 0)]
    Writer(db, "n", fixed_clock(), OPERATIONS).close()  # and it is upgraded by who writes into it
    with Reader(db) as reader:
        assert reader.rows("SELECT COUNT(*) FROM main.switch_second") == [(0,)]
