"""A state once told stays told until somebody looks at all of it again."""

from __future__ import annotations

import pytest

from ingero.detectors import ALL
from ingero.detectors.lasting import since_first, weigh
from ingero.model.finding import STATES, Effect, Finding, Severity, Victim


def finding(kind: str = "nccl-hang", first: int = 100, last: int = 200, pid: int = 1) -> Finding:
    return Finding(
        f"node:{kind}:{pid}:0", kind, Severity.CRITICAL, "it hangs", first, last, 0.9,
        Victim(pid, pid, "python"), Effect(None, None, None, None, None), [], None,
    )  # fmt: skip


def test_every_kind_of_state_is_a_kind() -> None:
    assert {detector.name for detector in ALL} >= STATES


@pytest.mark.parametrize(("from_ns", "to_ns"), [(150, None), (50, 150), (201, None)])
def test_what_was_told_from_time_not_looked_at_again_stands(from_ns: int, to_ns: int | None) -> None:
    weighed = weigh([finding()], [], from_ns, to_ns)
    assert weighed.kept == [finding()]
    assert weighed.withdrawn == []


@pytest.mark.parametrize(("from_ns", "to_ns"), [(0, None), (100, 200)])
def test_what_is_not_found_again_in_the_same_time_is_withdrawn(from_ns: int, to_ns: int | None) -> None:
    weighed = weigh([finding()], [], from_ns, to_ns)
    assert weighed.kept == []
    assert weighed.withdrawn == [finding()]


def test_what_is_found_again_is_told_once() -> None:
    assert weigh([finding()], [finding(last=300)], 150, None).kept == []


def test_findings_about_time_are_judged_anew() -> None:
    weighed = weigh([finding("cpu-contention")], [], 150, None)
    assert weighed.kept == weighed.withdrawn == []


def test_a_state_begins_when_it_was_first_told() -> None:
    assert since_first(finding(first=150), finding(first=100)).first_ns == 100
    assert since_first(finding(first=50), finding(first=100)).first_ns == 50
    assert since_first(finding(), None) == finding()
