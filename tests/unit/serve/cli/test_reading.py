"""query, check, version, demo and schema, on a recording the demo makes."""

import contextlib
import csv
import importlib
import io
import json
import os
import re
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from ingero.errors import KernelError
from ingero.model.check_line import Check
from ingero.scenarios.catalogue import ALL
from ingero.serve.answers import json_schemas
from ingero.serve.answers.checks import asked, get_checks
from ingero.serve.answers.query import distinct
from ingero.serve.cli import output
from ingero.serve.cli.demo import SCENARIOS
from ingero.serve.cli.main import main


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.db"
    assert main(["demo", "--no-gpu", "--no-tui", "--speed", "10000", "-d", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """`ingero check` takes seconds, for it tries every shape of probe: as text, as JSON, and its bundle."""
    bundle = tmp_path_factory.mktemp("check") / "bundle.tar.gz"
    answer = get_checks(None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ingero.serve.answers.checks.get_checks", lambda db: answer)
        texts = []
        for flags in (("--support-bundle", str(bundle)), ("--json",)):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                assert main(["check", *flags]) == 0
            texts.append(out.getvalue())
    return texts[0], texts[1], bundle


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_the_demo_shows_its_job_and_leaves_a_private_recording(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("INGERO_DB", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    text = said(capsys, "demo", "--no-gpu", "--no-tui", "--speed", "10000")
    path = tmp_path / ".ingero/demo.db"
    for part in (
        "8 s  somebody starts stress-ng",
        "% waiting for a core",
        "found  [HIGH]",
        "Diagnosis of demo",
        "[HIGH] stress-ng-cpu",
        "ingero query ",  # found without -d: it is the newest recording
    ):
        assert part in text, part
    assert path.stat().st_mode & 0o777 == 0o600
    assert said(capsys, "demo", "--no-gpu", "--no-tui", "--speed", "10000") != ""
    counted = json.loads(said(capsys, "query", "-d", str(path), "--json", "SELECT count(*) AS n FROM losses"))
    assert counted["rows"] == [{"n": 0}]


def test_all_scenarios_are_recorded_one_after_the_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    db = str(tmp_path / "all.db")
    text = said(capsys, "demo", "--no-gpu", "--no-tui", "--speed", "10000", "all", "-d", db)
    told = re.findall(r"^ingero demo ([a-z-]+):", text, re.MULTILINE)
    assert told == list(SCENARIOS)
    sql = "SELECT kind, first_ns FROM findings WHERE pid = 4821 ORDER BY first_ns"
    rows = json.loads(said(capsys, "query", "-d", db, "--json", sql))["rows"]
    assert [row["kind"] for row in rows] == [each.finding for each in ALL]
    last = json.loads(said(capsys, "explain", "-d", db, "--json"))
    assert {found["kind"] for found in last["findings"]} == {"gpu-shared"}


def test_ingero_db_names_the_demos_recording_unless_a_job_is_in_it(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up = importlib.import_module("ingero.scenarios.demo")
    monkeypatch.setenv("INGERO_DB", str(tmp_path / "new.db"))
    assert made_up.default_path() == tmp_path / "new.db"
    jobs = Path(shutil.copy(recording, tmp_path / "jobs.db"))
    monkeypatch.setenv("INGERO_DB", str(jobs))
    assert made_up.default_path() == jobs  # an earlier demo
    with contextlib.closing(sqlite3.connect(jobs)) as connection, connection:
        connection.execute("UPDATE node SET name = 'gpu-node-01'")
    assert made_up.default_path() == tmp_path / "demo.db"
    (tmp_path / "torn.db").write_bytes(b"not a database")
    monkeypatch.setenv("INGERO_DB", str(tmp_path / "torn.db"))
    assert made_up.default_path() == tmp_path / "demo.db"


def test_a_mode_that_cannot_be_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    privileges = importlib.import_module("ingero.agent.starting")
    monkeypatch.setattr(privileges, "missing_capabilities", lambda: ["CAP_BPF"])
    assert main(["demo", "--live", "-d", str(tmp_path / "d.db")]) == 1
    assert "--no-gpu, which needs no privileges" in capsys.readouterr().err
    text = said(capsys, "demo", "--no-tui", "--speed", "10000", "-d", str(tmp_path / "d.db"))
    assert "made up" in text
    monkeypatch.setattr(privileges, "missing_capabilities", list)
    monkeypatch.setattr(privileges, "has_btf", lambda: True)
    monkeypatch.setattr("ingero.scenarios.live.CARD", tmp_path / "no-card")
    assert main(["demo", "--gpu", "-d", str(tmp_path / "d.db")]) == 1
    assert "no NVIDIA GPU here" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def lines(seed: str) -> list[tuple[str, int]]:
        text = said(
            capsys,
            "demo",
            "--no-gpu",
            "--json",
            "--speed",
            "10000",
            "--seed",
            seed,
            "-d",
            str(tmp_path / seed),
        )
        return [(line["op"], line["duration"]) for line in map(json.loads, text.splitlines())]

    once = lines("3")
    assert lines("3") == once
    assert lines("4") != once


def test_statistics_agree_with_the_stream(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    answer = json.loads(said(capsys, "query", "-d", str(recording), "--json"))
    by_name = {row["op"]: row for row in answer["operations"]}
    sql = "SELECT SUM(weight) AS calls FROM events WHERE op = 'cuLaunchKernel'"
    calls = json.loads(said(capsys, "query", "-d", str(recording), "--json", sql))["rows"][0]["calls"]
    assert by_name["cuLaunchKernel"]["count"] == calls > 50_000
    assert by_name["cuLaunchKernel"]["exact"] is True
    copies = by_name["cuMemcpyHtoDAsync_v2"]
    assert copies["bytes"] == copies["count"] * (8 << 20) > 0
    assert answer["counted_from"] == "recording"
    text = said(capsys, "query", "-d", str(recording))
    assert re.search(rf"│ cuLaunchKernel +│ {calls:,} │", text)


def test_filters_choose(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    db = ["query", "-d", str(recording), "--json"]
    only = json.loads(
        said(capsys, *db, "--op", "cudaMalloc", "--pod", "nightly-retraining-0", "--namespace", "ml")
    )
    assert [row["op"] for row in only["operations"]] == ["cudaMalloc"]
    late = json.loads(said(capsys, *db, "--since", "3s"))
    assert 0 < late["operations"][0]["count"] < 296


@pytest.mark.parametrize("more", [(), ("--kernels",)])
def test_a_process_or_operation_that_never_was_is_an_error(
    capsys: pytest.CaptureFixture[str], recording: Path, more: tuple[str, ...]
) -> None:
    for flag, value, hint in (
        ("--pid", "99999", "It has 4821 (python3)"),
        ("--op", "cudaNothing", "query` lists those that were called"),
    ):
        assert main(["query", "-d", str(recording), *more, flag, value]) == 1
        said = capsys.readouterr().err
        assert f"{value} in this recording" in said.replace("'", "")
        assert hint in said


def test_sql_prints_columns_csv_and_json(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    sql = "SELECT comm, pid, sum(ns) AS ns FROM culprits GROUP BY pid ORDER BY pid"
    lines = said(capsys, "query", "-d", str(recording), sql).splitlines()
    assert lines[0].split() == ["comm", "pid", "ns"]
    assert lines[2].split()[:2] == ["stress-ng-cpu", "5190"]
    rows = list(
        csv.DictReader(io.StringIO(said(capsys, "query", "-d", str(recording), "--format", "csv", sql)))
    )
    assert [row["pid"] for row in rows] == [str(pid) for pid in range(5190, 5198)]
    found = json.loads(said(capsys, "query", "-d", str(recording), "--format", "json", sql))
    assert found["rows"][0]["comm"] == "stress-ng-cpu"


def test_a_limit_is_said_on_stderr(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    assert main(["query", "-d", str(recording), "--limit", "2", "SELECT * FROM events"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert "Only the first 2 rows" in err


def test_no_rows_is_said_too(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    assert main(["query", "-d", str(recording), "SELECT * FROM events WHERE 0"]) == 0
    assert capsys.readouterr().err == "No rows.\n"


def test_parquet_without_pyarrow_says_what_to_install(
    capsys: pytest.CaptureFixture[str], recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert main(["query", "-d", str(recording), "--format", "parquet", "SELECT 1"]) == 2
    assert "pip install 'ingero[parquet]'" in capsys.readouterr().err


def test_what_a_hostile_row_holds_stays_text(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    sql = "SELECT char(27) || '[2J' || char(155) || char(8238) || 'x' AS a, 1 AS a, x'00ff' AS b"
    for form in ("table", "json"):
        text = said(capsys, "query", "-d", str(recording), "--format", form, sql)
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    found = json.loads(text)
    assert found["columns"] == ["a", "a_2", "b"]
    assert found["rows"][0] == {"a": "\x1b[2J\x9b\u202ex", "a_2": 1, "b": "00ff"}


def test_a_name_that_comes_twice_gets_a_number() -> None:
    assert distinct(["a", "a", "a_2", "a"]) == ["a", "a_2", "a_2_2", "a_3"]


def test_every_schema_holds_for_real_output(
    capsys: pytest.CaptureFixture[str], recording: Path, checked: tuple[str, str, Path], tmp_path: Path
) -> None:
    db = ["-d", str(recording)]
    outputs = {
        "check": checked[1],
        "explain": said(capsys, "explain", *db, "--json"),
        "explain-compare": said(capsys, "explain", "--compare", *[str(recording)] * 2, "--json"),
        "merge": said(capsys, "merge", str(recording), "-o", str(tmp_path / "merged.db"), "--json"),
        "query": said(capsys, "query", *db, "--json"),
        "query-kernels": said(capsys, "query", *db, "--kernels", "--json"),
        "query-sql": said(capsys, "query", *db, "--json", "SELECT * FROM events LIMIT 3"),
        "query-schema": said(capsys, "query", "--schema", "--json"),
        "version": said(capsys, "version", "--json"),
    }
    for name, text in outputs.items():
        msgspec.json.decode(text, type=json_schemas.ANSWERS[name][1])
    # Held to their schemas where there are lines and labels, nodes to ask, a fleet, and prices.
    nodes = {"cost-nodes", "explain-nodes", "merge-nodes", "query-nodes", "query-nodes-sql"}
    others = {"trace", "query-by", "cost", "fleet-status", *nodes}
    assert set(outputs) | others == set(json_schemas.ANSWERS)


def test_every_line_of_json_holds_to_the_schema(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = said(capsys, "demo", "--no-gpu", "--json", "--speed", "10000", "-d", str(tmp_path / "d.db"))
    lines = [msgspec.json.decode(line, type=json_schemas.TraceLine) for line in text.splitlines()]
    assert {line.source for line in lines} == {1, 3, 4, 8, 9}
    reduce = next(line for line in lines if line.op == "ncclAllReduce")
    assert (reduce.comm_hash, reduce.datatype, reduce.reduce_op) == ("0000000000005eed", "float32", "sum")
    launches = sum(line.weight for line in lines if line.op == "cuLaunchKernel")
    syncs = sum(line.weight for line in lines if line.op == "cudaStreamSynchronize")
    assert launches // 120 in (syncs, syncs + 1)  # 120 per iteration, the last one cut


def test_the_schema_document_names_every_answer(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(said(capsys, "schema", "--json"))
    assert set(document["answers"]) == set(json_schemas.ANSWERS)
    for answer in document["answers"].values():
        assert answer["$ref"].removeprefix("#/$defs/") in document["$defs"]
    assert "ingero check --json" in said(capsys, "schema")


def test_query_schema_describes_every_view(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "query", "--schema")
    assert "cuda_events:" in text
    assert "SUM(weight)" in text


def test_check_prints_a_line_for_each_thing_and_a_bundle(checked: tuple[str, str, Path]) -> None:
    text, _, bundle = checked
    assert "kernel" in text
    assert os.uname().release in text
    assert bundle.stat().st_mode & 0o777 == 0o600


def test_check_with_exit_code_fails_when_a_check_failed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [Check("\x1b[1mkernel", "failed", "too old", "Use 5.15 or newer.")]
    monkeypatch.setattr("ingero.discover.host_checks.run_checks", lambda *_: failed)
    assert main(["check"]) == 0
    assert main(["check", "--exit-code"]) == 1
    assert "✗ kernel  too old\n" in capsys.readouterr().out


def test_a_part_that_cannot_be_asked_is_a_failed_check() -> None:
    def refused() -> list[Check]:
        raise KernelError("no BTF", hint="Use another kernel.")

    def missing() -> list[Check]:
        raise ImportError("no _shim")

    assert asked("shapes", refused) == [Check("shapes", "failed", "no BTF", "Use another kernel.")]
    assert asked("cost", missing)[0].status == "failed"


def test_json_of_a_hostile_string_is_escaped_and_true() -> None:
    text = output.to_json({"a": "\x1b\x9b\u202e\u2028é"})
    assert text.isprintable()
    assert json.loads(text) == {"a": "\x1b\x9b\u202e\u2028é"}


def test_kernels_are_listed_with_how_many_launches_have_a_name(
    capsys: pytest.CaptureFixture[str], recording: Path
) -> None:
    answer = json.loads(said(capsys, "query", "-d", str(recording), "--kernels", "--json"))
    msgspec.convert(answer, json_schemas.KernelsAnswer)
    assert answer["launches"] > 0
    assert sum(row["launches"] for row in answer["kernels"]) == answer["launches"]
    text = said(capsys, "query", "-d", str(recording), "--kernels")
    assert "of the launches have a name" in text
    rows = list(
        csv.DictReader(
            io.StringIO(said(capsys, "query", "-d", str(recording), "--kernels", "--format", "csv"))
        )
    )
    assert [row["launches"] for row in rows] == [str(row["launches"]) for row in answer["kernels"]]
    nothing = said(capsys, "query", "-d", str(recording), "--kernels", "--op", "cudaMalloc")
    assert "No launch was recorded" in nothing
    assert main(["query", "-d", str(recording), "--kernels", "SELECT 1"]) != 0
