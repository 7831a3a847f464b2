"""The diagnosis while tracing costs and remembers no more than it may, however many jobs come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.agent import diagnosis
from ingero.agent.diagnosis import EVERY_NS, MOST_SHARE, LiveDiagnosis
from ingero.model.finding import Effect, Finding, Severity, Victim, finding_id
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, call, fixed_clock, window
from tests.builders import finding as made

NODE = "gpu-node-01"


class Cpu:
    """A look takes what is set here."""

    def __init__(self, look_ns: int) -> None:
        self.now_ns, self.look_ns = 0, look_ns

    def __call__(self) -> int:
        self.now_ns += self.look_ns // 2
        return self.now_ns


def looks(live: LiveDiagnosis, seconds: int, monkeypatch: pytest.MonkeyPatch) -> int:
    found: list[int | None] = []
    monkeypatch.setattr(live, "_look", found.append)
    for second in range(seconds):
        live.consider(second * SECOND + 1)
    return len(found)


def test_looks_that_take_long_come_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Writer(tmp_path / "a.db", NODE, fixed_clock(), OPERATIONS) as writer:
        quick = looks(LiveDiagnosis(writer, Cpu(1000)), 400, monkeypatch)
        slow_ns = 4 * SECOND
        slow = looks(LiveDiagnosis(writer, Cpu(slow_ns)), 400, monkeypatch)
    assert quick == 400 * SECOND // EVERY_NS - 1
    assert 0 < slow * slow_ns // 2 <= 400 * SECOND * MOST_SHARE


@pytest.mark.parametrize(
    "look_s, reach_s", [(0.01, None), (2.0, 150 * 5 / 2.0), (40.0, 150)], ids=["quick", "slow", "very slow"]
)
def test_the_last_look_reaches_as_far_as_its_time_allows(
    look_s: float, reach_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int | None] = []
    with Writer(tmp_path / "a.db", NODE, fixed_clock(), OPERATIONS) as writer:
        live = LiveDiagnosis(writer, Cpu(int(2 * look_s * SECOND)))
        monkeypatch.setattr(live, "_look", found.append)
        for second in range(10):
            live.consider(second * SECOND + 1)
        live.conclude()
    assert found[-1] == (None if reach_s is None else int(reach_s * SECOND))


def state(pid: int) -> Finding:
    return Finding(
        finding_id(NODE, "cuda-error", pid, EPOCH_NS), "cuda-error", Severity.HIGH, "it failed",
        EPOCH_NS - 60 * SECOND, EPOCH_NS - 50 * SECOND + pid, 0.9,
        Victim(pid, pid, "python"), Effect(None, None, None, None, None), [], None,
    )  # fmt: skip


def test_findings_of_jobs_without_end_are_not_all_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "MOST_KEPT", 10)
    with Writer(tmp_path / "a.db", NODE, fixed_clock(), OPERATIONS) as writer:
        live = LiveDiagnosis(writer)
        writer.write(window(calls=[call("cudaStreamSynchronize", 100, at_ns=1)]))
        live._states = {each.key: each for each in map(state, range(1, 31))}
        live.conclude()
        assert sorted(each.victim.pid for each in live.findings) == list(range(21, 31))
        for pid in range(1, 31):
            live._with_line(made(pid=pid, id=f"n1:{pid}"))
        assert len(live._lines) <= 10


def test_what_a_look_took_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(diagnosis._shim, "give_back", lambda: done.append("given back"))
    with Writer(tmp_path / "a.db", NODE, fixed_clock(), OPERATIONS) as writer:
        live = LiveDiagnosis(writer)
        monkeypatch.setattr(live, "_look", lambda _reach_ns: done.append("looked"))
        for second in range(1, 12):
            live.consider(second * SECOND)
    assert done == ["looked", "given back"] * (len(done) // 2)
    assert len(done) >= 4
