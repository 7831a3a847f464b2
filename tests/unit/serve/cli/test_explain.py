"""`ingero explain` on the recording of the demo."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import ingero
from ingero.model.live import DatabaseStatus, LiveView, Surface
from ingero.model.options import TraceOptions
from ingero.model.report import Report
from ingero.serve.answers import explain
from ingero.serve.answers.compare import Comparison
from ingero.serve.answers.diagnosis import Diagnosed
from ingero.serve.cli.main import main
from tests.builders import finding, unexplained

TRAINER = 4821


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.db"
    assert main(["demo", "--no-gpu", "--no-tui", "--speed", "10000", "-d", str(path)]) == 0
    return path


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody took the trainer's cores, the detectors say."""
    found = finding(pid=TRAINER, comm="python3")
    monkeypatch.setattr(explain, "diagnosed", lambda *_: Diagnosed([found], [unexplained(TRAINER)]))


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "diagnosed", lambda *_: Diagnosed())


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["explain", *arguments]) == code
    return capsys.readouterr().out


def test_the_diagnosis_is_printed(capsys: pytest.CaptureFixture[str], recording: Path, slow: None) -> None:
    text = said(capsys, "-d", str(recording))
    for part in ("Diagnosis of demo", "the whole last recording", "[HIGH] Another", "$ taskset", "Time:"):
        assert part in text, part
    assert "along python" in said(capsys, "-d", str(recording), "-v")
    assert "SELECT" in said(capsys, "-d", str(recording), "--show-sql")
    part = said(capsys, "-d", str(recording), "--last", "5s", "--pid", str(TRAINER))
    assert "counted back from the last record" in part or "counted back from now" in part


def test_no_problem_is_an_answer(capsys: pytest.CaptureFixture[str], recording: Path, healthy: None) -> None:
    text = said(capsys, "-d", str(recording), "--exit-code")
    assert "No problem found." in text
    assert "python3 (4821) for 20 s" in text


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str], recording: Path, slow: None) -> None:
    text = said(capsys, "-d", str(recording), "--json")
    answer = json.loads(text)
    assert set(answer) >= {
        "node", "window", "system", "findings", "processes", "losses", "overhead", "not_watched",
    }  # fmt: skip
    assert set(answer["findings"][0]) >= {
        "id", "kind", "severity", "title", "first_ns", "last_ns", "confidence", "victim", "effect", "causes",
        "explained_share", "source", "stack", "gain", "fix",
    }  # fmt: skip
    report = msgspec.json.decode(text, type=Report)
    for process in report.processes:
        assert sum(process.time.values()) == process.threads_ns
        assert all(sum(thread.time.values()) == thread.ns for thread in process.threads)
    by_pid = {process.pid: process for process in report.processes}
    assert by_pid[TRAINER].container == "ml/nightly-retraining-0"
    assert by_pid[5190].cpu_taken_ns > 0


def test_numbers_are_those_of_query(
    capsys: pytest.CaptureFixture[str], recording: Path, healthy: None
) -> None:
    answer = json.loads(said(capsys, "-d", str(recording), "--json"))
    assert main(["query", "-d", str(recording), "--json"]) == 0
    statistics = {row["op"]: row for row in json.loads(capsys.readouterr().out)["operations"]}
    main_process = next(each for each in answer["processes"] if each["pid"] == TRAINER)
    for line in main_process["operations"]:
        for name in ("count", "exact", "p50_ns", "p95_ns", "p99_ns", "max_ns", "bytes"):
            assert line[name] == statistics[line["op"]][name]
        assert line["wall_share"] == pytest.approx(statistics[line["op"]]["wall_share"])


def test_exit_code_three_only_when_asked(
    capsys: pytest.CaptureFixture[str], recording: Path, slow: None
) -> None:
    said(capsys, "-d", str(recording))
    said(capsys, "-d", str(recording), "--exit-code", code=3)
    said(capsys, "-d", str(recording), "--exit-code", "--json", code=3)


def test_per_process(capsys: pytest.CaptureFixture[str], recording: Path, slow: None) -> None:
    text = said(capsys, "-d", str(recording), "--per-process")
    for part in (
        "python3 (4821)",
        "cuLaunchKernel",
        "Off-CPU:",
        "Stall:",
        "pt_data_worker (4830)",
        "stress-ng-cpu",
    ):
        assert part in text, part


@pytest.mark.parametrize("form", ["md", "html", "text", "json"])
def test_reports_go_to_files(
    capsys: pytest.CaptureFixture[str], recording: Path, slow: None, tmp_path: Path, form: str
) -> None:
    path = tmp_path / f"report.{form}"
    assert said(capsys, "-d", str(recording), "--format", form, "-o", str(path)) == ""
    text = path.read_text()
    assert "Another process takes the CPU" in text
    assert text == said(capsys, "-d", str(recording), "--format", form)
    assert "\x1b" not in text


def test_comparing_two_recordings(
    capsys: pytest.CaptureFixture[str], recording: Path, slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = said(capsys, "--compare", str(recording), str(recording))
    assert "Another process takes the CPU the GPU thread needs: still there" in text
    answer = msgspec.json.decode(
        said(capsys, "--compare", str(recording), str(recording), "--json"), type=Comparison
    )
    assert [change.status for change in answer.findings] == ["still-there"]
    said(capsys, "--compare", str(recording), str(recording), "--exit-code", code=3)
    assert "still there" in said(capsys, "--compare", str(recording), str(recording), "--format", "html")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-d", "/nowhere/x.db"], 1, "there is no database"),
        (["--compare", "/nowhere/x.db", "/nowhere/y.db"], 1, "there is no database"),
        (["--compare", "a", "b", "--pid", "1"], 2, "--compare and --pid exclude each other"),
        (["--compare", "a", "b", "--per-process"], 2, "--compare and --per-process exclude"),
        (["--json", "--format", "html"], 2, "exclude each other"),
        (["--since", "x"], 2, "cannot read the duration"),
        (["--since", "5m", "--from", "2026-01-01"], 2, "exclude each other"),
        (["--from", "2033-01-01"], 2, "--from is after the end of the recording"),
        (["--to", "2001-01-01"], 2, "--to is before the start of the last recording"),
        (["--from", "2033-01-02", "--to", "2033-01-01"], 2, "--from must be before --to"),
        (["--pid", "abc"], 2, "'abc' is not a whole number"),
        (["--from", "2033-01-01", "--to", "2033-01-02"], 2, "nothing was recorded between"),
        (["--pid", "77"], 1, "process 77 was not seen"),
        (["-o", "/nowhere/x.html", "--format", "html"], 2, "cannot write /nowhere/x.html"),
        (["-o", "/dev/null", "--format", "html"], 2, "is not a plain file"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str],
    recording: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    monkeypatch.setenv("INGERO_DB", str(recording))
    assert main(["explain", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) <= 2


def test_a_database_nobody_recorded_into_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    assert main(["explain", "-d", str(path)]) == 1
    assert "is empty" in capsys.readouterr().err


def test_a_traced_command_ends_with_its_diagnosis_on_stderr(
    capsys: pytest.CaptureFixture[str],
    recording: Path,
    slow: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def run(options: TraceOptions, surface: Surface) -> int:
        recorded = DatabaseStatus(str(options.db) if options.record else None)
        surface.end(LiveView(0, 0, database=recorded), 7)
        return 7

    agent = SimpleNamespace(run=run)
    monkeypatch.setitem(sys.modules, "ingero.agent", agent)
    monkeypatch.setattr(ingero, "agent", agent, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("INGERO_")]:
        monkeypatch.delenv(name)
    for more in ([], ["--json"]):
        assert main(["trace", "-d", str(recording), *more, "--", "python", "train.py"]) == 7
        out, err = capsys.readouterr()
        assert out == ""
        assert "[HIGH] Another process takes the CPU" in err
    assert main(["trace", "-d", str(recording), "--no-record", "--", "python"]) == 7
    assert main(["trace", "-d", str(recording), "--no-tui"]) == 7
    assert "[HIGH]" not in "".join(capsys.readouterr())
    assert main(["trace", "-d", str(tmp_path / "none.db"), "--", "python"]) == 7
    assert "No diagnosis: there is no database" in capsys.readouterr().err
