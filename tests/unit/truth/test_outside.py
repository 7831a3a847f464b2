"""The jobs the diagnosis has never met: what is said to be true of them is sound."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.truth.outside import faulty, healthy
from benchmarks.truth.outside.job import PROGRAMS, Job
from benchmarks.truth.outside.pace import loss, steps_per_s
from benchmarks.truth.outside.play import drawn, paces
from ingero.model.words import KINDS

SECOND = 1_000_000_000
DRAWS = (*faulty.ALL, *healthy.ALL)


def jobs(seed: int = 3) -> list[Job]:
    return [draw(Random(seed)) for draw in DRAWS]


def test_names_are_the_jobs_own() -> None:
    names = [job.name for job in jobs()]
    assert len(set(names)) == len(names)
    assert sum(job.faulty for job in jobs()) == len(faulty.ALL)


@pytest.mark.parametrize("job", jobs(), ids=lambda job: job.name)
def test_what_is_true_of_a_job_is_sound(job: Job) -> None:
    assert (PROGRAMS / job.program).is_file()
    assert all(source.line() for source in job.sources)
    assert bool(job.right) == job.faulty
    assert job.right | job.tolerable | job.wrong <= set(KINDS)
    assert not job.right & (job.tolerable | job.wrong)
    assert not job.tolerable & job.wrong
    assert bool(job.then or job.around) or not job.faulty


def test_the_same_seed_draws_the_same() -> None:
    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)


def test_half_of_the_faults_begin_while_they_are_watched() -> None:
    late = [amid for job, amid in drawn(5) if job.faulty]
    assert abs(2 * sum(late) - len(late)) <= 1
    assert not any(amid for job, amid in drawn(5) if not job.faulty)


def test_a_pace_is_steps_over_the_time_between_their_ends() -> None:
    ends = [number * SECOND // 4 for number in range(40)]
    assert steps_per_s(ends, SECOND, 5 * SECOND) == pytest.approx(4)
    assert steps_per_s(ends, 20 * SECOND, 22 * SECOND) == 0


def test_the_loss_is_what_is_gone_of_the_pace_before_the_onset() -> None:
    quick = [number * SECOND // 10 for number in range(101)]
    slow = [10 * SECOND + number * SECOND // 5 for number in range(1, 60)]
    met = paces(quick + slow, 0, 10 * SECOND, 20 * SECOND)
    assert met["loss"] == pytest.approx(0.5, abs=0.01)
    assert loss(None, 3.0) is None
    assert loss(4.0, 0.0) == 1
