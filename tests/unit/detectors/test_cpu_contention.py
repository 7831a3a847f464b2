"""CPU contention: fires, names who, does not blame the neighbour, is quiet on a healthy run."""

from __future__ import annotations

import pytest

from ingero.model.facts import LossFact
from ingero.model.finding import Severity
from tests.facts import HOG, JOB, MS, WORKER, Story, job

LOST = {"runqueue": 600.0}


def test_a_core_taken_while_the_gpu_has_nothing_is_contention_and_names_who() -> None:
    found = job(LOST, gap=LOST).culprit(HOG, "stress", 600).findings()
    assert [each.kind for each in found] == ["cpu-contention"]
    finding = found[0]
    assert finding.severity is Severity.HIGH
    assert finding.effect.wall_share == pytest.approx(0.3, abs=0.01)
    assert [(who.pid, who.comm) for who in finding.causes[0].who] == [(HOG, "stress")]
    assert finding.causes[0].bucket == "runqueue"
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.01)
    assert str(HOG) in " ".join(fix.command or "" for fix in finding.fix)
    assert sum(cause.share for cause in finding.causes) == pytest.approx(1)


def test_who_had_the_core_for_microseconds_is_not_in_the_proof() -> None:
    (found,) = job(LOST, gap=LOST).culprit(HOG, "stress", 600).culprit(11, "kworker/0:1", 0.2).findings()
    (proof,) = [each.text for each in found.causes[0].evidence if "meanwhile" in each.text]
    assert "stress" in proof
    assert "kworker" not in proof


def test_a_healthy_run_has_no_finding() -> None:
    assert job().kinds() == []


def test_a_core_lost_inside_a_wait_for_the_gpu_costs_nothing() -> None:
    story = job(LOST).culprit(HOG, "stress", 600)
    story.calls("cudaStreamSynchronize", 200, 900, split={"gpu_wait": 900, "runqueue": 600})
    assert story.kinds() == []


def test_coming_back_late_from_a_wait_for_the_gpu_does_cost() -> None:
    story = job(LOST, late_ns=300).culprit(HOG, "stress", 600)
    story.calls("cudaStreamSynchronize", 200, 900, split={"gpu_wait": 900, "runqueue": 600})
    assert story.kinds() == ["cpu-contention"]


def test_a_core_lost_while_the_gpu_works_is_hidden_by_the_wait_that_follows() -> None:
    assert job(LOST).culprit(HOG, "stress", 600).kinds() == []


def test_sleeping_is_not_contention_whoever_runs_meanwhile() -> None:
    asleep = {"sleep": 1000.0}
    assert job(asleep, gap=asleep).culprit(HOG, "stress", 1).kinds() == []


def test_the_agent_is_never_the_culprit() -> None:
    assert job(LOST, gap=LOST).culprit(999, "ingero", 600).kinds() == []


def test_a_quota_is_not_blamed_on_anybody() -> None:
    story = job(LOST, gap=LOST, throttled_ns=600).culprit(0, "[cpu quota]", 600, throttled=True)
    assert story.kinds() == ["cpu-throttled"]


def test_contention_of_the_worker_we_wait_for_is_followed() -> None:
    waits = {"peer_wait": 1000.0}
    story = job(waits, gap=waits).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {"runqueue": 1500.0}, rest="host_cpu")
    story.waker(WORKER, "loader", "peer_wait", 1000).culprit(HOG, "stress", 1500, victim=WORKER)
    found = story.findings()
    assert found[0].kind == "cpu-contention"
    assert found[0].causes[0].via == ["loader"]
    assert found[0].causes[0].who[0].pid == HOG


def test_losses_make_it_less_sure() -> None:
    story = job(LOST, gap=LOST).culprit(HOG, "stress", 600)
    sure = story.findings()[0].confidence
    story.facts.losses = [LossFact("ring_thread", 100, 0, story.facts.to_ns)]
    assert story.findings()[0].confidence < sure


def test_without_the_scheduler_it_is_not_watched() -> None:
    story = job(LOST, gap=LOST).culprit(HOG, "stress", 600)
    story.facts.absent = {"sched": "the kernel refused it"}
    diagnosis = story.diagnose()
    assert diagnosis.findings == []
    assert "cpu-contention" in {each.what for each in diagnosis.not_watched}


def test_a_short_disturbance_is_not_worth_a_finding() -> None:
    brief = range(2, 3)
    story = job(when=range(2)).culprit(HOG, "stress", 400, when=brief)
    job({"runqueue": 400.0}, {"runqueue": 400.0}, story=story, when=brief)
    job(story=story, when=range(3, 6))
    assert story.kinds() == []


def test_an_incident_is_told_with_its_time_after_recovery() -> None:
    during = range(10, 15)
    story = job(when=range(10), slices=30).culprit(HOG, "stress", 1000, when=during)
    job({"runqueue": 1000.0}, {"runqueue": 1000.0}, story=story, when=during, steps=100)
    job(story=story, when=range(15, 30))
    finding = story.findings()[0]
    assert (finding.first_ns, finding.last_ns) == (20_000 * MS, 30_000 * MS)
    assert finding.effect.usual_ns == 10 * MS
    assert finding.effect.now_ns == 20 * MS
    assert finding.severity is Severity.CRITICAL


def commands(story: Story) -> str:
    (finding,) = story.findings()
    return "\n".join(fix.command or "" for fix in finding.fix)


def test_a_crowd_is_moved_as_a_whole_and_a_hostile_name_never_reaches_the_shell() -> None:
    story, hostile = job(LOST, gap=LOST), job(LOST, gap=LOST)
    for pid in range(HOG, HOG + 6):
        story.culprit(pid, "stress-ng-cpu", 100)
        hostile.culprit(pid, "$(reboot)", 100)
    assert "pgrep -x stress-ng-cpu | xargs -r -n 1 taskset -acp 7" in commands(story)
    assert "pgrep -x stress-ng-cpu | xargs -r -n 1 renice -n 19 -p" in commands(story)
    assert "reboot" not in commands(hostile)


@pytest.mark.parametrize(
    ("cpus", "moved"),
    [((2, 3, 4), "-acp 0-1,5-7 300"), ((3,), "-acp 0-2,4-7 300"), ((0, 1, 2, 5), "-acp 3-4,6-7 300")],
)
def test_who_is_in_the_way_of_a_confined_job_goes_elsewhere(cpus: tuple[int, ...], moved: str) -> None:
    said = commands(job(LOST, gap=LOST).process(JOB, "python3", cpus=cpus).culprit(HOG, "stress", 590))
    assert f"taskset {moved}" in said
    assert f" {JOB}" not in said  # it stays where it is


@pytest.mark.parametrize("cpus", [(), tuple(range(64))])
def test_cores_that_are_not_plugged_in_confine_nobody(cpus: tuple[int, ...]) -> None:
    said = commands(job(LOST, gap=LOST).process(JOB, "python3", cpus=cpus).culprit(HOG, "stress", 590))
    assert "taskset -acp 0-6 100" in said


@pytest.mark.parametrize("cores", [1, -1, 0])
def test_with_one_core_nobody_is_moved_to_another(cores: int) -> None:
    story = job(LOST, gap=LOST).culprit(HOG, "stress", 590)
    story.facts.cores = cores
    assert "taskset" not in commands(story)
    assert "renice" in commands(story)


def test_cores_that_nobody_has_break_nothing() -> None:
    story = job(LOST, gap=LOST).culprit(HOG, "stress", 590)
    story.facts.cores = 10**12
    assert "taskset" in commands(story)


def test_nobody_is_moved_for_a_trifle() -> None:
    story = job(LOST, gap=LOST).culprit(HOG, "stress", 590).culprit(HOG + 1, "kworker/1:0", 10)
    assert str(HOG + 1) not in commands(story)


def test_kernel_threads_are_not_to_be_moved() -> None:
    """taskset and renice fail on them, or do harm."""
    story = job(LOST, gap=LOST).culprit(17, "ksoftirqd/1", 400).process(17, "ksoftirqd/1", parent=2)
    story.culprit(HOG, "stress", 200)
    assert "17" not in commands(story)
    assert f"renice -n 19 -p {HOG}" in commands(story)


def test_of_several_of_a_name_the_title_says_how_many() -> None:
    story = job({"runqueue": 1000.0}, {"runqueue": 1000.0})
    title = story.culprit(HOG, "stress", 600).culprit(HOG + 1, "stress", 400).findings()[0].title
    assert title.startswith("stress (2 processes) takes the CPU")


def test_cores_that_the_agent_had_are_said_beside_the_causes() -> None:
    story = job(LOST, gap=LOST).culprit(HOG, "stress", 550).culprit(999, "ingero", 50)
    (found,) = story.findings()
    assert all(each.pid != 999 for cause in found.causes for each in cause.who)
    assert [(each.pid, each.comm) for each in found.who] == [(999, "ingero itself")]
    assert found.who[0].ns > 0
    assert job(LOST, gap=LOST).culprit(HOG, "stress", 600).findings()[0].who == []
