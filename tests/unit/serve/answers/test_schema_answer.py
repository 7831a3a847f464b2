from __future__ import annotations

from pathlib import Path

from ingero.serve.answers.query import answer_sql
from ingero.serve.answers.schema import NOTES, VIEWS
from ingero.serve.answers.schema_page import schema_markdown
from ingero.store.reader import Reader
from ingero.store.recording import connect
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, call, fixed_clock, window

DOCS = Path(__file__).parents[4] / "docs" / "schema.md"


def test_every_view_of_the_database_is_described_column_by_column(tmp_path: Path) -> None:
    connection = connect(tmp_path / "x.db")
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
    real = {
        name: [column[0] for column in connection.execute(f"SELECT * FROM {name}").description]
        for name in names
    }
    connection.close()
    assert {view.name: list(view.columns) for view in VIEWS} == real


def test_the_page_in_the_docs_is_this_description() -> None:
    assert DOCS.read_text() == schema_markdown()


def test_rows_and_calls_are_told_apart() -> None:
    assert any("SUM(weight)" in note and "COUNT(*)" in note for note in NOTES)


def test_sql_answers_with_columns_and_rows(tmp_path: Path) -> None:
    with Writer(tmp_path / "x.db", "n", fixed_clock(), OPERATIONS) as writer:
        writer.write(window(calls=call(weight=12)))
    with Reader(tmp_path / "x.db") as reader:
        answer = answer_sql(reader, "SELECT COUNT(*) AS n, SUM(weight) AS calls FROM cuda_events")
    assert (answer.columns, answer.rows, answer.truncated) == (["n", "calls"], [(1, 12)], False)
