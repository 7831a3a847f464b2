"""NCCL hang: a collective that others never joined, or that never ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingero.model.facts import Arrival, InFlight
from ingero.model.finding import Severity
from tests.facts import JOB, MS, SECOND, Story, job
from tests.unit.detectors.rounds import PIDS, ranks

KIND = "nccl-hang"
MISSING = 3
SYNC = "cudaStreamSynchronize"


def hung(joined: tuple[int, ...] = (0, 1, 2), for_s: float = 10, rounds: int = 100) -> Story:
    """100 rounds, one every 10 ms, then one that only some ranks join and then wait in."""
    story = ranks()
    last = rounds * 10 * MS
    story.facts.arrivals = [
        Arrival(7, seq, "ncclAllReduce", rank, len(PIDS), pid, seq * 10 * MS, 1024)
        for seq in range(rounds + 1)
        for rank, pid in enumerate(PIDS)
        if seq < rounds or rank in joined
    ]
    story.facts.in_flight = [
        InFlight(PIDS[rank], PIDS[rank], SYNC, last, last + int(for_s * SECOND), "gpu_wait")
        for rank in joined
    ]
    return story


def test_the_rank_that_never_joined_is_named() -> None:
    finding = hung().findings()[0]
    assert (finding.kind, finding.severity) == (KIND, Severity.CRITICAL)
    assert f"rank {MISSING} (pid {PIDS[MISSING]}) never joined" in finding.title
    assert [who.pid for who in finding.who] == [PIDS[MISSING]]
    assert "10 s" in finding.causes[0].evidence[0].text
    assert (
        f"rank {MISSING} (pid {PIDS[MISSING]}) last entered number 99" in finding.causes[0].evidence[-1].text
    )


def test_a_collective_all_joined_that_does_not_end_is_a_hang_without_a_culprit() -> None:
    finding = hung(joined=(0, 1, 2, 3)).findings()[0]
    assert finding.kind == KIND
    assert "all 4 ranks" in finding.title
    assert finding.who == []


def test_a_short_wait_is_no_hang() -> None:
    assert KIND not in hung(for_s=2).kinds()


def test_slow_rounds_need_more_patience() -> None:
    story = hung(for_s=10)
    story.facts.arrivals = [
        Arrival(7, seq, "ncclAllReduce", rank, 4, pid, seq * SECOND, 1024)
        for seq in range(11)
        for rank, pid in enumerate(PIDS)
        if seq < 10 or rank != MISSING
    ]
    story.facts.in_flight = [InFlight(100, 100, SYNC, 10 * SECOND, 20 * SECOND, "gpu_wait")]
    assert KIND not in story.kinds()


def test_a_rank_behind_that_nobody_waits_for_is_no_hang() -> None:
    story = hung()
    story.facts.in_flight = []
    assert KIND not in story.kinds()


def test_a_wait_of_another_process_is_not_the_ranks() -> None:
    story = hung()
    story.facts.in_flight = [InFlight(555, 555, SYNC, SECOND, 15 * SECOND, "gpu_wait")]
    assert KIND not in story.kinds()


def test_a_wait_that_ended_before_the_collective_is_not_it() -> None:
    story = hung()
    story.facts.in_flight = [InFlight(100, 100, SYNC, -20 * SECOND, 0, "gpu_wait")]
    assert KIND not in story.kinds()


def test_ranks_in_step_are_quiet() -> None:
    story = hung(joined=(0, 1, 2, 3))
    story.facts.in_flight = []
    assert story.kinds() == []


@pytest.mark.parametrize("source", ["calls", "nccl"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert hung().abstains(KIND, source)


def busy_elsewhere(for_s: float, rest: str) -> Story:
    """Rank 0 is missing and spends its time so."""
    story = hung(joined=(1, 2, 3), for_s=for_s)
    story.rows["threads"] = [row for row in story.rows["threads"] if row["pid"] != PIDS[0]]
    return story.thread(PIDS[0], "python3", {"host_cpu": 500.0}, feeder=True, rest=rest)


@pytest.mark.parametrize("rest", ["disk_wait", "host_cpu", "memory_wait", "runqueue"])
@pytest.mark.parametrize(("for_s", "said"), [(4, False), (29, False), (31, True)])
def test_a_missing_rank_that_works_is_late_and_not_hung(rest: str, for_s: float, said: bool) -> None:
    """Four seconds of checkpoint on rank 0, and half a minute of it."""
    assert (KIND in busy_elsewhere(for_s, rest).kinds()) is said


@pytest.mark.parametrize("rest", ["lock_wait", "peer_wait", "net_wait", "sleep", "gpu_wait"])
def test_a_missing_rank_that_waits_itself_gets_no_more_patience(rest: str) -> None:
    assert KIND in busy_elsewhere(4, rest).kinds()


def test_a_rank_that_made_no_collective_at_all_is_missing_too() -> None:
    story = hung(joined=(0, 1, 2), rounds=0)
    story.facts.standing = [Arrival(7, -1, "ncclCommInitRank", MISSING, 4, PIDS[MISSING], -5 * MS, None)]
    finding = story.findings()[0]
    assert finding.kind == KIND
    assert f"rank {MISSING} (pid {PIDS[MISSING]}) never joined" in finding.title
    assert "has entered none" in finding.causes[0].evidence[-1].text


def test_a_hang_that_ended_with_its_process_is_told() -> None:
    story = hung()
    story.facts.in_flight = [replace(each, died=True) for each in story.facts.in_flight]
    finding = story.findings()[0]
    assert finding.kind == KIND
    assert "had waited" in finding.causes[0].evidence[0].text


def test_a_wait_all_are_in_that_is_as_long_as_others_were_is_healthy() -> None:
    story = hung(joined=(0, 1, 2, 3))
    for pid in PIDS:
        story.calls(SYNC, 1, 4000, pid=pid, when=range(1))
    assert KIND not in story.kinds()


def test_while_others_still_come_it_is_no_hang() -> None:
    story = hung(for_s=10)
    late = Arrival(7, 90, "ncclAllReduce", MISSING, 4, PIDS[MISSING], 9 * SECOND, 1024)
    story.facts.arrivals = [*story.facts.arrivals, late]
    assert KIND not in story.kinds()


def nameless(for_s: float, at_ns: int = 0, then: bool = False) -> Story:
    """A process whose communicator nobody knows waits after a collective."""
    story = job(slices=12)
    story.rows["operations"] = [row for row in story.rows["operations"] if row["slice"] < 1 or then]
    story.facts.nameless = {JOB: at_ns}
    story.facts.in_flight = [InFlight(JOB, JOB, SYNC, SECOND, int((1 + for_s) * SECOND), "gpu_wait")]
    return story


def test_with_an_unknown_communicator_a_wait_far_longer_than_any_before_is_told_less_surely() -> None:
    finding = next(each for each in nameless(20).findings() if each.kind == KIND)
    assert finding.severity == Severity.CRITICAL
    assert finding.confidence < 0.8
    assert any("not known" in proof.text for proof in finding.causes[0].evidence)


@pytest.mark.parametrize(
    "story",
    [nameless(5), nameless(20, at_ns=5 * SECOND), nameless(20, then=True)],
    ids=["not long", "collectives after it", "other calls after it"],
)
def test_with_an_unknown_communicator_less_is_no_hang(story: Story) -> None:
    assert KIND not in story.kinds()


def before_us(for_s: float = 15, nccl: bool = True, others: int = 1, busy: bool = False) -> Story:
    """Processes found in a call that began before the trace, and others started the same way."""
    story = Story(12)
    pids = [500, *range(501, 501 + others)]
    for pid in pids:
        story.process(pid, "python", parent=400, cmdline="python train.py")
        bucket = "host_cpu" if busy and pid != 500 else "sleep"
        story.thread(pid, "python", {}, feeder=pid == 500, rest="gpu_wait" if pid == 500 else bucket)
    story.facts.in_flight = [
        InFlight(500, 500, SYNC, SECOND, int((1 + for_s) * SECOND), "gpu_wait", False, False, nccl)
    ]
    return story


def test_a_rank_that_hung_before_the_trace_is_told_with_those_that_are_not_in_it() -> None:
    finding = next(each for each in before_us().findings() if each.kind == KIND)
    assert finding.severity == Severity.CRITICAL
    assert [who.pid for who in finding.who] == [501]
    assert finding.confidence < 0.8


@pytest.mark.parametrize(
    "story",
    [before_us(nccl=False), before_us(others=0), before_us(for_s=8), before_us(busy=True)],
    ids=["no NCCL", "nobody else", "not long", "the other one works"],
)
def test_a_long_wait_from_before_the_trace_alone_is_no_hang(story: Story) -> None:
    assert KIND not in story.kinds()


def test_what_a_process_was_told_makes_it_a_rank() -> None:
    story = before_us(for_s=70, others=0)
    story.process(500, "python", parent=400, cmdline="python train.py", rank=0, world_size=8)
    story.slices = 40
    assert KIND in story.kinds()
