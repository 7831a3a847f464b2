"""Labels on the command line: sending them, and asking by them."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ingero.agent.annotation_socket import AnnotationSocket
from ingero.model.layout import Why
from ingero.model.window import Annotation
from ingero.serve.answers import json_schemas
from ingero.serve.cli.main import main
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, call, process, thread, wait, window

MS = 1_000_000


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INGERO_RUN_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir(mode=0o755)
    return tmp_path / "run"


@pytest.fixture
def agent(run_dir: Path) -> Iterator[list[bytes]]:
    """A real socket; what it hears, and it refuses what says so."""
    heard: list[bytes] = []

    def hear(raw: bytes, sender: tuple[int, int]) -> str:
        assert sender == (os.getpid(), os.getuid())
        heard.append(raw)
        return "not a process of yours" if b"refuse" in raw else ""

    listening = AnnotationSocket(hear)
    yield heard
    listening.close()
    assert not (run_dir / "annotate.sock").exists()


def test_labels_are_sent_for_the_caller_or_a_process_named(agent: list[bytes]) -> None:
    assert main(["annotate", "--label", "step=120", "--label", "epoch=3"]) == 0
    assert main(["annotate", "--label", "phase=", "--pid", "42"]) == 0
    first, second = (raw.decode().split("\n") for raw in agent)
    assert first[0].split()[2] == "-1"
    assert first[1:] == ["step=120", "epoch=3"]
    assert second[0].split()[2] == "42"
    assert second[1:] == ["phase="]


def test_a_refusal_is_an_error_with_a_hint(agent: list[bytes], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotate", "--label", "step=refuse"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: the label was not accepted: not a process of yours\nhint: "
    )


def test_no_trace_is_an_error_with_a_hint(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotate", "--label", "step=1"]) == 1
    assert "no trace takes labels at" in capsys.readouterr().err


def test_a_trace_that_does_not_answer_is_told(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent:
        silent.bind(str(run_dir / "annotate.sock"))
        assert main(["annotate", "--label", "step=1"]) == 0
    assert "did not confirm it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["annotate"], ["annotate", "--label", "step"], ["annotate", "--label", "=3"]]
)
def test_what_is_no_label_is_wrong_usage(words: list[str]) -> None:
    assert main(words) == 2


def test_only_a_socket_is_replaced_and_only_in_a_folder_of_our_own(run_dir: Path) -> None:
    from ingero.errors import IngeroError

    (run_dir / "annotate.sock").write_text("mine")
    with pytest.raises(IngeroError, match="is not a socket"):
        AnnotationSocket(lambda *_: "")
    (run_dir / "annotate.sock").unlink()
    run_dir.chmod(0o777)
    with pytest.raises(IngeroError, match="written to by others"):
        AnnotationSocket(lambda *_: "")


def test_a_flood_is_heard_by_a_thread_that_ends(agent: list[bytes], run_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for number in range(300):
            sender.sendto(b"%d" % number, str(run_dir / "annotate.sock"))  # waits while the queue is full
    assert any(each.name == "annotations" for each in threading.enumerate())
    while len(agent) < 300:
        pass
    assert [int(raw) for raw in agent] == list(range(300))


# --- asking -----------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> str:
    labels = [Annotation(100, at * MS, "step", str(n)) for n, at in enumerate((0, 100, 600))]
    rare = int(Why.WHY_RARE)
    with Writer(tmp_path / "l.db", "n", FakeTime().clock(), OPERATIONS) as writer:
        writer.write(
            window(
                processes=[process()],
                threads=[thread(sleep=400 * MS, host_cpu=600 * MS)],
                waits=[wait("sleep", 400 * MS, at_ns=150 * MS)],
                calls=[
                    call("cudaStreamSynchronize", MS, at_ns=at * MS, why=rare) for at in (50, 550, 700, 900)
                ],
                annotations=labels,
            )
        )
        writer.write(window(SECOND))
    return str(tmp_path / "l.db")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out

    return run


def test_statistics_by_step(db: str, said: Callable[..., str]) -> None:
    text = said("query", "-d", db, "--by", "step", "--json")
    msgspec.json.decode(text, type=json_schemas.ANSWERS["query-by"][1])
    answer = json.loads(text)
    counts = {each["value"]: each["operations"][0]["count"] for each in answer["values"]}
    assert counts == {"0": 1, "1": 1, "2": 2}
    assert answer["values"][0]["value"] == "2"  # until the recording ends
    rows = list(csv.DictReader(io.StringIO(said("query", "-d", db, "--by", "step", "--format", "csv"))))
    assert {row["step"]: int(row["count"]) for row in rows} == counts
    table = said("query", "-d", db, "--by", "step")
    assert "by step, longest first" in table
    assert "cudaStreamSynchronize" in table


def test_statistics_while_a_label_held(db: str, said: Callable[..., str]) -> None:
    answer = json.loads(said("query", "-d", db, "--label", "step=0..1", "--json"))
    assert [row["count"] for row in answer["operations"]] == [2]
    assert answer["recorded_ns"] == 600 * MS


def test_the_slowest_steps_and_where_their_time_went(db: str, said: Callable[..., str]) -> None:
    text = said("explain", "-d", db, "--by", "step")
    assert "By step: 3" in text
    assert "asleep on purpose 80 %" in text
    assert "By step: 3" in said("explain", "-d", db, "--by", "step", "--per-process")
    assert "| 1 |" in said("explain", "-d", db, "--by", "step", "--format", "md")
    answer = json.loads(said("explain", "-d", db, "--label", "step=1", "--json"))
    assert answer["window"]["anchor"] == "label"
    assert answer["by"] is None


@pytest.mark.parametrize(
    "words",
    [
        ["query", "--by", "step", "SELECT 1"],
        ["query", "--label", "step=1", "SELECT 1"],
        ["query", "--by", "step", "--kernels"],
        ["query", "--label", "step=1", "--kernels"],
        ["query", "--label", "step"],
        ["query", "--by", "epoch"],
        ["explain", "--label", "step=77"],
        ["explain", "--by", "epoch"],
    ],
)
def test_what_cannot_be_asked_is_wrong_usage(words: list[str], db: str) -> None:
    assert main([words[0], "-d", db, *words[1:]]) == 2
