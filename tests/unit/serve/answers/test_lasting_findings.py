"""States told while it was recorded are told by `explain`, for as long as the recording is there."""

from __future__ import annotations

from pathlib import Path

from ingero.agent.diagnosis import LiveDiagnosis, row_of
from ingero.model.finding import Effect, Finding, Severity, Victim, finding_id
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, call, fixed_clock, window

NODE = "gpu-node-01"


def told(kind: str = "cuda-error", first_s: int = 2, last_s: int = 4) -> Finding:
    return Finding(
        finding_id(NODE, kind, 100, EPOCH_NS), kind, Severity.HIGH, "it failed",
        EPOCH_NS + first_s * SECOND, EPOCH_NS + last_s * SECOND, 0.9,
        Victim(100, 100, "python"), Effect(None, None, None, None, None), [], None,
    )  # fmt: skip


def record(path: Path, *findings: Finding) -> None:
    with Writer(path, NODE, fixed_clock(), OPERATIONS) as writer:
        writer.save_findings(row_of(each, writer.recording_id) for each in findings)
        for second in range(10):
            calls = [call("cudaStreamSynchronize", 100, at_ns=second * SECOND + 1)]
            assert writer.write(window(second * SECOND, calls=calls)) == ""


def explained(path: Path, from_s: int = 0, to_s: int = 10) -> list[str]:
    start, end = (str(EPOCH_NS // SECOND + each) for each in (from_s, to_s))
    wanted = Range(start=start, end=end)
    return [each.kind for each in get_report(path, wanted).findings]


def test_a_state_that_began_before_the_time_asked_about_is_told(tmp_path: Path) -> None:
    record(tmp_path / "a.db", told(), told("cpu-contention"))
    assert explained(tmp_path / "a.db", from_s=3) == ["cuda-error"]
    assert explained(tmp_path / "a.db", from_s=6) == []


def test_a_state_whose_detail_is_gone_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    record(path, told())
    assert explained(path) == []  # all is there, and shows no error
    with Writer(path, NODE, fixed_clock(), OPERATIONS) as writer:
        writer._connection.execute("DELETE FROM event WHERE ts_ns < ?", (EPOCH_NS + 5 * SECOND,))
    assert explained(path) == ["cuda-error"]


def test_the_live_diagnosis_takes_back_what_it_does_not_find_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Writer(path, NODE, fixed_clock(), OPERATIONS) as writer:
        live = LiveDiagnosis(writer)
        writer.write(window(calls=[call("cudaStreamSynchronize", 100, at_ns=1)]))
        old, wrong = told(first_s=-60, last_s=-50), told("gpu-fault", 0, 1)
        live._states = {each.key: each for each in (old, wrong)}
        writer.save_findings(row_of(each, writer.recording_id) for each in (old, wrong))
        live.conclude()
        assert [each.kind for each in live.findings] == ["cuda-error"]
        assert live.trouble == ""
    with Writer(path, NODE, fixed_clock(), OPERATIONS) as writer:
        rows = writer._connection.execute("SELECT kind FROM finding").fetchall()
    assert rows == [("cuda-error",)]
