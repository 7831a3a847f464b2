"""Idle GPU: the card idles, there is work, and no other kind names most of why."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from ingero.model.layout import WakerKind
from ingero.model.window import Records
from tests.facts import JOB, SECOND, Story, job


def test_an_idle_card_with_work_is_told_from_the_start() -> None:
    story = job({"lock_wait": 1400.0}).looked(gpu_share=0.2).paced()
    assert story.kinds() == ["gpu-idle"]
    assert story.severity("gpu-idle") is Severity.CRITICAL


def test_what_another_kind_names_is_told_by_that_one() -> None:
    assert job({"disk_wait": 1400.0}).looked(gpu_share=0.2).paced().kinds() == ["disk-wait"]


def test_a_program_that_sleeps_on_purpose_wants_nothing() -> None:
    assert "gpu-idle" not in job({"sleep": 1400.0}).looked(gpu_share=0.2).paced().kinds()


def test_a_server_that_waits_to_be_asked_wants_nothing() -> None:
    story = job({"net_wait": 1400.0}).looked(gpu_share=0.2)
    story.process(JOB, "python3", listens=True)
    assert "gpu-idle" not in story.paced().kinds()


def test_a_busy_card_is_no_trouble() -> None:
    assert not job({"lock_wait": 900.0}).looked(gpu_share=0.95).paced().kinds()


def test_without_the_cards_word_nothing_is_concluded() -> None:
    assert "gpu-idle" not in job({"lock_wait": 1400.0}).paced().kinds()


def roughly_counted(story: Story) -> Story:
    """Every second has its calls, and none of them is exact: there is no pace."""
    exact = story.paced().facts.seconds

    def rough(pid: int) -> Records:
        seconds = exact(pid)
        seconds["exact"] = 0
        return seconds

    story.facts.seconds = rough
    return story


def test_who_keeps_no_pace_in_the_first_minute_may_still_be_loading_and_compiling() -> None:
    kinds = []
    for start_ns in (1, -3600 * SECOND):
        story = roughly_counted(job({"lock_wait": 1400.0}, slices=9).looked(gpu_share=0.2))
        kinds.append(story.process(JOB, "python3", start_ns=start_ns).kinds())
    assert kinds == [[], ["gpu-idle"]]


CLIENT = 700


def lingering() -> Story:
    """A server that waits half a step for more requests, until its time is up."""
    story = job({"lock_wait": 1400.0}).looked(gpu_share=0.2).process(JOB, "python3", listens=True)
    story.waker(0, "", "lock_wait", 1390, kind=WakerKind.WAKER_IRQ_TIMER)
    return story.thread(CLIENT, "client", {}, rest="peer_wait").process(CLIENT, "client")


def asking(story: Story) -> Story:
    return story.waker(CLIENT, "client", "lock_wait", 10)


def waiting(story: Story, ms: float) -> Story:
    """The client waits so long for the server."""
    return story.waker(JOB, "python3", "peer_wait", ms, of=CLIENT)


def test_a_server_that_waits_for_more_while_its_clients_wait_is_idle_by_its_own_choice() -> None:
    diagnosis = waiting(asking(lingering()), 1990).paced().diagnose()
    (found,) = diagnosis.findings
    assert found.kind == "gpu-idle"
    assert "waits, and others wait for its answer" in found.title
    assert found.fix[0].text.startswith("Answer the requests that are there")
    (bound,) = diagnosis.bound
    assert (bound.by, bound.what) == ("lock_wait", "asked")
    assert "while others wait for its answer" in bound.text


def test_a_server_whose_clients_wait_for_no_longer_than_it_works_waits_to_be_asked() -> None:
    diagnosis = waiting(asking(lingering()), 580).paced().diagnose()
    assert not diagnosis.findings
    assert [each.by for each in diagnosis.bound] == ["requests"]


def test_who_reads_what_a_server_writes_all_the_time_asks_nothing() -> None:
    assert not waiting(lingering(), 1990).paced().findings()


def test_a_loop_that_waits_for_its_own_clock_wants_nothing() -> None:
    story = job({"lock_wait": 1400.0}).looked(gpu_share=0.2)
    story.waker(0, "", "lock_wait", 1400, kind=WakerKind.WAKER_IRQ_TIMER)
    diagnosis = story.paced().diagnose()
    assert "gpu-idle" not in {each.kind for each in diagnosis.findings}
    assert [each.what for each in diagnosis.bound] == ["clock"]


def in_turns(story: Story) -> Story:
    """A few launches, then a wait for their result."""
    return story.calls("cudaStreamSynchronize", 1000, 1, split={"gpu_wait": 1})


def test_where_no_card_tells_a_server_that_holds_its_clients_up_is_told_all_the_same() -> None:
    held = {"lock_wait": 1400.0}
    for asked, told in ((1990, True), (580, False)):
        story = in_turns(job(held).process(JOB, "python3", listens=True))
        story.waker(0, "", "lock_wait", 1390, kind=WakerKind.WAKER_IRQ_TIMER)
        story.process(CLIENT, "client").thread(CLIENT, "client", {}, rest="peer_wait")
        assert ("gpu-idle" in waiting(asking(story), asked).paced().kinds()) == told


@pytest.mark.parametrize("asked", [True, False])
def test_a_thread_of_the_servers_own_that_waits_with_a_request_is_asked_for_too(asked: bool) -> None:
    """Its handler waits for the thread that feeds the GPU, which waits for one that sleeps with a lock.

    Nobody has asked a thread that only works ahead for the next step."""
    story = in_turns(job({"lock_wait": 1400.0}).process(JOB, "python3", listens=True))
    story.thread(JOB, "handler", {}, tid=150, rest="peer_wait")
    story.thread(JOB, "pusher", {}, tid=151, rest="sleep").waker(151, "pusher", "lock_wait", 1300, by_pid=JOB)
    story.waker(150, "handler", "lock_wait", 10, by_pid=JOB)
    story.waker(JOB, "python3", "peer_wait", 1990, of=150, of_pid=JOB)
    if asked:
        story.waker(CLIENT, "client", "peer_wait", 5, of=150, of_pid=JOB)
    found = {each.kind: each.causes[0].bucket for each in story.paced().findings()}
    assert found.get("gpu-idle") == ("sleep" if asked else None)
