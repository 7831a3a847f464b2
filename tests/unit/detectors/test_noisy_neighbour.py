"""Noisy neighbour: contention whose culprit lives in another container."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SEVERITIES, Story, job

KIND = "noisy-neighbour"
POD = "3f2a9c41d7be0011"


def crowded(ms: float, theirs: str | None = POD, ours: str | None = None, slices: int = 12) -> Story:
    lost = {"runqueue": ms}
    story = job(lost, lost, slices=slices).process(JOB, "python3", container=ours)
    return story.process(HOG, "stress", container=theirs).culprit(HOG, "stress", ms)


@pytest.mark.parametrize("ours", [None, "another"])
def test_a_process_of_another_container_is_a_neighbour_and_its_container_is_named(ours: str | None) -> None:
    (finding,) = crowded(600, ours=ours).findings()
    assert finding.kind == KIND
    assert POD[:12] in finding.title
    (who,) = finding.causes[0].who
    assert (who.pid, who.comm, who.container) == (HOG, "stress", POD)
    assert POD[:12] in (finding.fix[0].command or "")


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert crowded(ms).severity(KIND) is severity


def test_all_the_time_taken_can_be_won() -> None:
    (finding,) = crowded(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_pods_are_named_with_their_namespaces_on_both_sides() -> None:
    story = crowded(600).process(JOB, "python3", container="a/train", pod="train", namespace="a")
    story.process(HOG, "stress", container="b/train", pod="train", namespace="b")
    (finding,) = story.findings()
    assert finding.kind == KIND
    assert "in pod b/train takes the CPU that python3 in pod a/train needs" in finding.title
    assert (finding.victim.container, finding.causes[0].who[0].container) == ("a/train", "b/train")
    assert finding.fix[0].command is None  # the kubelet would undo it


@pytest.mark.parametrize(("theirs", "ours"), [(POD, POD), (None, POD), (None, None)])
def test_a_process_of_our_container_or_of_none_is_plain_contention(
    theirs: str | None, ours: str | None
) -> None:
    assert crowded(600, theirs, ours).kinds() == ["cpu-contention"]


@pytest.mark.parametrize(("theirs_ms", "others_ms"), [(100, 500), (310, 290), (570, 30)])
def test_a_neighbour_is_blamed_for_its_part_and_not_for_what_others_took(
    theirs_ms: float, others_ms: float
) -> None:
    lost = {"runqueue": 600.0}
    story = job(lost, lost, slices=12).process(HOG, "stress", container=POD).process(301, "cron")
    story.culprit(HOG, "stress", theirs_ms).culprit(301, "cron", others_ms)
    found = {each.kind: each for each in story.findings()}
    assert found[KIND].effect.wall_share == pytest.approx(theirs_ms / 2000, abs=0.001)
    assert [who.pid for who in found[KIND].causes[0].who] == [HOG]
    others = found.get("cpu-contention")
    assert (others.effect.wall_share if others else 0) == pytest.approx(
        others_ms / 2000 if others_ms > 60 else 0, abs=0.001
    )


def test_a_neighbour_that_takes_nothing_is_quiet() -> None:
    assert job().process(HOG, "stress", container=POD).culprit(HOG, "stress", 5).kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert crowded(600).abstains(KIND, source)
