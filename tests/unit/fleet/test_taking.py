"""What a node tells of a round: differences of counters, its jobs, its GPUs, its findings in few words."""

from __future__ import annotations

from ingero.fleet.push.taking import Taker, command_digest, told
from ingero.model.metrics import SeriesPoint, Snapshot
from ingero.model.report import Bound
from tests.builders import EPOCH_NS, SECOND, finding

WHO = ("100", "python", "c1", "pod-1", "ml")
GPU = ("0", "GPU-1", "H200")


def snapshot(seconds: int, wait_s: float, lost: float = 0.0, start_ns: int = EPOCH_NS) -> Snapshot:
    def point(value: float, *labels: str) -> SeriesPoint:
        return SeriesPoint(labels, value, start_ns)

    points = {
        "process.info": [point(1, *WHO, "3", "8", "docker", "slurm-7")],
        "thread.time": [point(wait_s, *WHO, "gpu_wait"), point(2.0, *WHO, "host_cpu")],
        "lost.events": [point(lost, "ring_full")],
        "agent.cpu.time": [point(seconds / 100)],
        "overhead": [point(0.01)],
        "targets": [point(1)],
        "gpu.utilization": [point(0.9, *GPU)],
        "gpu.memory.used": [point(5, *GPU)],
        "gpu.clock": [point(1.9e9, *GPU, "sm"), point(2.6e9, *GPU, "memory")],
        "gpu.throttled.time": [point(seconds / 10, *GPU, "heat")],
    }
    return Snapshot(EPOCH_NS + seconds * SECOND, EPOCH_NS, "n1", points)


def bound(pace: float, usual: float | None = None) -> Bound:
    return Bound(100, "python", "gpu", 0.9, None, None, [], 0.9, pace, usual)


def test_a_round_is_the_difference_to_the_one_before() -> None:
    taker = Taker("c", "0" * 16)
    first = taker.take(snapshot(10, 8.0))
    assert first.lost_events is None  # nothing to compare with: unknown, not none
    assert first.jobs == []
    second = taker.take(snapshot(20, 17.0, lost=3), [bound(9.0, 10.0)])
    assert second.lost_events == 3
    assert second.from_ns == first.at_ns
    assert (first.number, second.number) == (1, 2)
    (job,) = second.jobs
    assert job.time_s == {"gpu_wait": 9.0}
    assert (job.rank, job.world_size, job.job, job.namespace) == (3, 8, "slurm-7", "ml")
    assert job.pace_share == 0.9
    (card,) = second.gpus
    assert (card.busy_share, card.memory_used_bytes, card.sm_clock_hz) == (0.9, 5, 1.9e9)
    assert card.throttled_s == 1.0
    assert card.power_w is None


def test_a_counter_that_began_anew_has_grown_from_nothing() -> None:
    """The number now belongs to another process: less than before is no negative time."""
    taker = Taker("c", "0" * 16)
    taker.take(snapshot(10, 50.0))
    (job,) = taker.take(snapshot(20, 4.0, start_ns=EPOCH_NS + SECOND)).jobs
    assert job.time_s == {"gpu_wait": 4.0, "host_cpu": 2.0}


def test_of_a_recording_the_counters_are_of_the_round() -> None:
    made = Taker("c", "0" * 16).take(snapshot(10, 8.0, lost=2), of_round=True)
    assert made.lost_events == 2
    assert made.jobs[0].time_s == {"gpu_wait": 8.0, "host_cpu": 2.0}


def test_a_pace_that_held_is_the_usual_one() -> None:
    (job,) = Taker("c", "0" * 16).take(snapshot(10, 8.0), [bound(9.0)]).jobs
    assert job.pace_share == 1.0


def test_ranks_of_one_job_have_one_digest_and_the_command_line_stays_home() -> None:
    one = command_digest("python train.py --local_rank=3 --lr 0.1")
    assert one == command_digest("python  train.py --local_rank=0 --lr 0.1")
    assert one != command_digest("python train.py --local_rank=3 --lr 0.2")
    assert "train" not in one
    assert command_digest("") == ""


def test_a_finding_is_told_with_its_largest_cause_and_first_fix() -> None:
    short = told(finding(), 7, ended=True)
    assert short.opened_ns == 7
    assert short.ended
    assert short.lost_share == 0.4
    assert short.fix == "Give the job cores of its own."
    assert short.cause
