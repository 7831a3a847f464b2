"""merge on the command line, and what reads its result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from ingero.errors import TargetError
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.merging import MergeAnswer
from ingero.serve.answers.query import Range
from ingero.serve.answers.window import time_range
from ingero.serve.cli.main import main
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, call, operation, process, thread, window


def record(path: Path, node: str, pid: int = 100, at_s: int = 0, seconds: int = 3) -> Path:
    time = FakeTime()
    time.advance(at_s * SECOND)
    with Writer(path, node, time.clock(), OPERATIONS, cores=4) as writer:
        for at in range(at_s, at_s + seconds):
            writer.write(
                window(
                    at * SECOND,
                    calls=[call(pid=pid, at_ns=at * SECOND)],
                    operations=[operation(durations_ns=(1000, 2000), pid=pid)],
                    threads=[thread(pid, host_cpu=SECOND)],
                    processes=[process(pid)],
                    losses={"ring_call": 1},
                )
            )
    return path


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    files = [str(record(tmp_path / f"{node}.db", node, at_s=at)) for node, at in (("a", 0), ("b", 50))]
    assert main(["merge", *files, "-o", str(tmp_path / "out.db")]) == 0
    capsys.readouterr()
    return tmp_path / "out.db"


def test_the_answer_says_what_is_in_the_result(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = record(tmp_path / "c.db", "c")
    assert main(["merge", str(c), str(tmp_path / "a.db"), "-o", str(cluster), "--json"]) == 0
    answer = msgspec.json.decode(capsys.readouterr().out, type=MergeAnswer)
    assert answer.changed
    assert [(part.file, part.node) for part in answer.added] == [(str(c), "c")]
    assert [part.node for part in answer.already_there] == ["a"]
    assert [(node.node, node.recordings, node.events) for node in answer.nodes] == [
        ("a", 1, 4), ("b", 1, 3), ("c", 1, 4),
    ]  # fmt: skip
    assert answer.apart == ["b"]
    assert main(["merge", str(c), "-o", str(cluster)]) == 0
    said = capsys.readouterr().out
    assert "has everything already" in said
    assert "same time as any other node: b" in said


def test_a_name_that_could_steer_a_terminal_is_no_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = record(tmp_path / "a.db", "a")
    assert main(["merge", str(a), "-o", str(tmp_path / "o.db"), "--force-node", "x\x1b[2J"]) == 2
    assert not (tmp_path / "o.db").exists()


def test_the_whole_last_recording_is_that_of_every_node(cluster: Path) -> None:
    with Reader(cluster) as reader:
        both = time_range(reader)
    for node, starts, ends in (("a", True, False), ("b", False, True)):
        with Reader(cluster, node) as reader:
            own = time_range(reader)
        assert (own.from_ns == both.from_ns, own.to_ns == both.to_ns) == (starts, ends)


def test_one_node_is_all_a_question_sees(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for view in ("events", "operations", "losses", "processes", "thread_time", "cuda_events"):
        sql = f"SELECT DISTINCT node FROM {view}"
        assert main(["query", "-d", str(cluster), "--node", "b", "--json", sql]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == [{"node": "b"}], view
    sql = "SELECT DISTINCT rtrim(id, '0123456789') AS node FROM call_time"  # it has no column of that name
    assert main(["query", "-d", str(cluster), "--node", "b", "--json", sql]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"node": "b:"}]
    assert main(["query", "-d", str(cluster), "--node", "b", "--kernels", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["launches"]
    assert main(["query", "-d", str(cluster), "--kernels", "--json"]) == 0
    assert 0 < kernels < json.loads(capsys.readouterr().out)["launches"]
    assert main(["query", "-d", str(cluster), "--node", "b", "--json"]) == 0
    (launches,) = json.loads(capsys.readouterr().out)["operations"]
    assert launches["count"] == 6
    assert main(["query", "-d", str(cluster), "--json"]) == 0
    operations = json.loads(capsys.readouterr().out)["operations"]
    assert [(each["node"], each["count"]) for each in operations] == [("a", 6), ("b", 6)]
    assert main(["query", "-d", str(cluster)]) == 0
    shown = capsys.readouterr().out
    assert [line.strip() for line in shown.splitlines() if line.strip() in ("a", "b")] == ["a", "b"]
    assert main(["query", "-d", str(cluster), "--node", "b", "DELETE FROM event"]) == 2


def test_a_node_that_is_not_there_is_said_with_those_that_are(cluster: Path) -> None:
    with pytest.raises(TargetError) as caught:
        Reader(cluster, "elsewhere' OR 1 --")
    assert "a, b" in caught.value.hint


def test_explain_keeps_processes_of_two_nodes_apart(cluster: Path) -> None:
    report = get_report(cluster, Range())
    assert report.node == "a, b"
    assert [(process.node, process.pid, process.threads_ns) for process in report.processes] == [
        ("a", 100, 3 * SECOND), ("b", 100, 3 * SECOND),
    ]  # fmt: skip
    assert [(loss.reason, loss.count) for loss in report.losses] == [("ring_call", 6)]
    assert report.recorded_ns == 6 * SECOND
    assert report.system.cores == 8
    alone = get_report(cluster, Range(), node="b")
    assert (alone.node, [process.node for process in alone.processes]) == ("b", [None])


def test_explain_finds_a_process_on_whichever_node_it_ran(tmp_path: Path) -> None:
    files = [record(tmp_path / "a.db", "a", 100), record(tmp_path / "b.db", "b", 200)]
    assert main(["merge", *map(str, files), "-o", str(tmp_path / "o.db")]) == 0
    report = get_report(tmp_path / "o.db", Range(), pid=200)
    assert (report.node, [process.pid for process in report.processes]) == ("b", [200])
    with pytest.raises(TargetError, match="process 7 was not seen"):
        get_report(tmp_path / "o.db", Range(), pid=7)


def test_a_range_is_the_same_for_all_nodes(cluster: Path) -> None:
    report = get_report(cluster, Range(since="10s"))
    assert report.node == "b"


def test_findings_of_several_nodes_say_whose_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingero.scenarios import demo

    files = []
    for node, scenario in (("node-1", "incident"), ("node-2", "gpu-steal")):
        monkeypatch.setattr(demo, "NODE", node)
        files.append(str(tmp_path / f"{node}.db"))
        assert main(["demo", "--no-gpu", "--no-tui", "--speed", "10000", "-d", files[-1], scenario]) == 0
    out = str(tmp_path / "out.db")
    assert main(["merge", *files, "-o", out]) == 0
    capsys.readouterr()
    assert main(["explain", "-d", out]) == 0
    text = capsys.readouterr().out
    assert "Diagnosis of node-1, node-2" in text
    assert {"Node:        node-1", "Node:        node-2"} <= {line.strip() for line in text.splitlines()}
    assert main(["explain", "-d", out, "--node", "node-1"]) == 0
    assert "Node:" not in capsys.readouterr().out
    assert main(["explain", "-d", out, "--per-process"]) == 0
    assert re.search(r"python3 \(4821\).* on node-1", capsys.readouterr().out)


def test_a_link_as_result_is_refused_with_a_hint_that_helps(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = record(tmp_path / "c.db", "c")
    (tmp_path / "link.db").symlink_to(cluster)
    assert main(["merge", str(c), "-o", str(tmp_path / "link.db")]) != 0
    said = capsys.readouterr().err
    assert "symbolic link" in said
    assert "-o" in said
    assert "--db" not in said
    assert main(["merge", str(c), "-o", str(cluster)]) == 0


def test_a_link_to_one_of_the_files_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = record(tmp_path / "c.db", "c")
    (tmp_path / "link.db").symlink_to(c)
    assert main(["merge", str(c), "-o", str(tmp_path / "link.db")]) == 2
    assert "is one of the files to merge" in capsys.readouterr().err
