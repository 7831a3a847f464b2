"""A real recording whose every text steers a terminal and is a formula: nothing of it reaches either."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.corpus.kept import FOLDER, database
from ingero.serve.cli.main import main

HOSTILE = "=cmd|'/c calc'!A1\x1b[31m\x1b]0;owned\x07\x9b2J\u202e"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Texts that say what a row is; with others in their place it is no recording any more.
MEANING = {
    ("finding", "json"), ("finding", "kind"), ("finding", "severity"), ("finding", "key"),
    ("stack", "frames"), ("frame", "kind"), ("op", "layer"), ("op", "kind"), ("bucket", "name"),
    ("migration", "name"), ("meta", "key"), ("recording", "absent"), ("process", "boot_id"),
    ("process", "cpus"), ("recording", "boot_id"),
}  # fmt: skip
COMMANDS = [
    ["explain"], ["explain", "--per-process"], ["explain", "--format", "md"], ["query"],
    ["query", "--kernels"],
    ["query", "--format", "csv"], ["query", "--kernels", "--format", "csv"],
    ["query", "SELECT * FROM events LIMIT 50"], ["query", "SELECT * FROM processes", "--format", "csv"],
    ["query", "SELECT text AS [=1+1\x1b[2J] FROM string", "--format", "csv"],
    ["query", "SELECT text AS [=1+1\x1b[2J] FROM string"],
    ["query", "SELECT * FROM containers"], ["query", "SELECT * FROM findings", "--format", "csv"],
    ["export", "--format", "csv", "--table", "processes"],
    ["export", "--format", "csv", "--table", "containers"],
    ["export", "--format", "csv", "--table", "stacks"], ["export", "--format", "csv"],
    ["export", "--format", "folded"],
]  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "hostile.db"
    with database(FOLDER / "card" / "hogs-medium.json") as db:
        path.write_bytes(db.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                if kind == "TEXT" and (table, column) not in MEANING:
                    connection.execute(
                        f"UPDATE {table} SET {column} = ? || {column} WHERE {column} <> ''", (HOSTILE,)
                    )
        ids = connection.execute(
            "SELECT DISTINCT cgroup_id, node_id FROM process WHERE cgroup_id > 0"
        ).fetchall()
        connection.executemany(
            "INSERT OR REPLACE INTO container VALUES (?, ?, ?, ?, ?, NULL, NULL, ?)",
            [(node, cgroup, *[HOSTILE] * 4) for cgroup, node in ids],
        )
        connection.commit()
    return path


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_text_of_a_recording_steers_a_terminal_or_is_a_formula(
    words: list[str], hostile: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    code = main([*words, "-d", str(hostile)])
    shown = capsysbinary.readouterr()
    assert code == 0, shown.err
    text = shown.out.decode() + shown.err.decode()
    assert not STEERING.search(text), repr(STEERING.search(text))
    if "csv" in words:
        cells = [cell for row in csv.reader(io.StringIO(shown.out.decode())) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))]
