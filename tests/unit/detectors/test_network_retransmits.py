"""Network retransmits: waits for the network in which packets were sent again."""

from __future__ import annotations

import pytest

from ingero.model.facts import Incident
from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SECOND, SEVERITIES, WORKER, Story, job

KIND = "network-retransmits"


def waiting(ms: float, slices: int = 12) -> Story:
    lost = {"net_wait": ms}
    return job(lost, lost, slices=slices)


def lose_packets(story: Story, pid: int | None = JOB, peer: int | None = None, every_s: float = 0.5) -> Story:
    count = int(story.slices * 2 / every_s)
    story.facts.retransmits = [
        Incident(int(n * every_s * SECOND), pid, "python3", f"node:{n}", text="10.0.0.1:443", peer_pid=peer)
        for n in range(count)
    ]
    return story


def test_waits_with_packets_sent_again_are_found_with_their_events() -> None:
    (finding,) = lose_packets(waiting(600)).findings()
    assert finding.kind == KIND
    assert finding.causes[0].bucket == "net_wait"
    proof = finding.causes[0].evidence[0]
    assert proof.text == "48 packets sent again, to 10.0.0.1:443"
    assert proof.event_ids == ["node:0", "node:1", "node:2"]


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert lose_packets(waiting(ms)).severity(KIND) is severity


def test_all_the_time_waited_can_be_won() -> None:
    (finding,) = lose_packets(waiting(600)).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_packets_the_sender_at_the_other_end_lost_count_too() -> None:
    assert lose_packets(waiting(600), pid=None, peer=JOB).kinds() == [KIND]


def test_without_lost_packets_the_peer_is_slow() -> None:
    assert waiting(600).kinds() == ["slow-peer"]


def test_packets_of_another_process_are_not_ours() -> None:
    assert lose_packets(waiting(600), pid=HOG).kinds() == ["slow-peer"]


def test_a_single_lost_packet_now_and_then_is_not_the_cause() -> None:
    assert lose_packets(waiting(600), every_s=12).kinds() == ["slow-peer"]


def test_lost_packets_that_nobody_waits_for_are_quiet() -> None:
    assert lose_packets(job()).kinds() == []


def test_the_worker_whose_connection_loses_packets_is_found() -> None:
    waits = {"peer_wait": 1000.0}
    story = job(waits, waits).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {}, rest="net_wait").waker(WORKER, "loader", "peer_wait", 1000)
    (finding,) = lose_packets(story, pid=WORKER).findings()
    assert finding.kind == KIND
    assert finding.causes[0].via == ["loader"]


@pytest.mark.parametrize("source", ["calls", "sched", "tcp"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert lose_packets(waiting(600)).abstains(KIND, source)


def test_a_server_that_waits_to_be_asked_does_not_wait_for_packets() -> None:
    """Some are sent again on a busy machine, also to its clients, who ask seldom."""
    story = lose_packets(waiting(600)).process(JOB, "python3", listens=True)
    assert KIND not in story.kinds()
