"""Disk, memory and the interpreter of the job's own host."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import Case, Draw
from benchmarks.truth.held_out.shape import fit, gpu_ms, shape
from benchmarks.truth.props import Disk, JobBlamed, MemoryLimit

OPERATIONS = 1  # of the disk, for a note written through: the journal has a limit of its own


def notes(random: Random) -> Draw:
    """A small note is written through in every step or two, to a disk of few operations."""
    usual = shape(random, 6, 12, notes_every=random.randint(1, 3))
    per_s = OPERATIONS * 1000 / (gpu_ms(usual) * usual["notes_every"] * random.uniform(1.6, 2.6))
    return fit(random, usual, None, Disk(write_iops=int(per_s), for_both=True))


def working_set(random: Random) -> Draw:
    """What the job reads again and again was in memory; a limit leaves room for a part of it."""
    usual = shape(random, 7, 12, read_bytes=2 << 18, read_again=True, read_direct=False)
    limit = MemoryLimit(random.randint(16, 32))
    per_s = 1.5 * 1000 / (gpu_ms(usual) * random.uniform(1.7, 2.8))
    return fit(random, usual, None, limit, Disk(dataset_megabytes=128, read_iops=int(per_s)))


def job_killed(random: Random) -> Draw:
    """The job itself keeps more and more, until its memory limit ends it."""
    usual = shape(random, 6, 12)
    later = {"keeps_bytes": random.randint(1, 3) << 20}
    draw = fit(random, usual, later, MemoryLimit(random.randint(120, 220)), JobBlamed())
    draw.amid = draw.steps_end = True  # nobody can watch one that is dead
    return draw


def encoders(random: Random) -> Draw:
    """Threads turn records into text, in long calls that never let the interpreter go."""
    count = random.randint(2, 3)
    usual = shape(random, 6, 10, encoders=count, encoded_items=random.randint(0, 40))
    later = {"encoded_items": random.randint(4500, 7000), "encoder_rest_ms": random.uniform(4, 10)}
    return fit(random, usual, later)


def replay_buffer(random: Random) -> Draw:
    """Records that live for a while come and go; collections are triggered by their number."""
    usual = shape(random, 6, 9, records=random.randint(80_000, 150_000), collects=False)
    usual["turnover"] = random.randint(8000, 12_000)
    return fit(random, usual, {"collects": True})


def naps(random: Random) -> Draw:
    """Every so often the main thread sleeps, to spare a service it reports to."""
    every_s = random.uniform(0.7, 1.3)
    usual = shape(random, 4, 9)
    return fit(random, usual, {"nap_every_s": every_s, "nap_ms": every_s * 1000 * random.uniform(0.35, 0.8)})


CASES = (
    Case("notes-written-through", ("disk-wait",), notes),
    # The wait itself is one for the disk: both name the same trouble.
    Case("working-set-too-large", ("memory-pressure",), working_set, frozenset({"data-starvation"}),
         instead=frozenset({"disk-wait"})),
    Case("job-out-of-memory", ("oom-kill",), job_killed, frozenset({"memory-pressure"}), True, False),
    Case("encoder-threads", ("gil-contention",), encoders),
    Case("replay-buffer", ("gc-pause",), replay_buffer, frozenset({"periodic-spike", "data-starvation"})),
    Case("naps", ("periodic-spike",), naps),
)  # fmt: skip
