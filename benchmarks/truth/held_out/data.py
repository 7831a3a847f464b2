"""The device waits for data that come late in other ways."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import Case, Draw
from benchmarks.truth.held_out.shape import fit, gpu_ms, shape
from benchmarks.truth.props import Disk, WorkerBlamed, WorkersBlamed


def one_late_worker(random: Random) -> Draw:
    """One of several workers is late, and batches are taken in order."""
    workers = random.randint(3, 5)
    usual = shape(random, 5, 10, loader="workers", workers=workers, batch_ms=random.uniform(0.3, 1))
    number = random.randrange(workers)
    later = {
        "late_worker": number,
        "late_worker_sleep_ms": gpu_ms(usual) * workers * random.uniform(1.5, 2.8),
    }
    return fit(random, usual, later, WorkerBlamed(number))


def unpickling(random: Random) -> Draw:
    """A thread of the job makes objects from what another process sends; the batches have grown."""
    usual = shape(random, 5, 8, loader="pickled", batch_items=random.randint(50, 300))
    per_ms = 1500  # items, on the machine this was tried on
    return fit(random, usual, {"batch_items": round(gpu_ms(usual) * random.uniform(1.7, 2.8) * per_ms)})


def decoder_in_c(random: Random) -> Draw:
    """One thread decompresses without the interpreter's lock, and is too slow."""
    usual = shape(random, 6, 12, loader="decoded", batch_ms=random.uniform(0.5, 2))
    return fit(random, usual, {"batch_ms": gpu_ms(usual) * random.uniform(1.5, 2.8)})


def simulator(random: Random) -> Draw:
    """Batches come from a simulator at the other end of a pipe."""
    usual = shape(random, 5, 10, loader="child", batch_ms=random.uniform(0.5, 2))
    what = random.choice(("batch_ms", "batch_sleep_ms"))
    return fit(random, usual, {what: gpu_ms(usual) * random.uniform(1.6, 2.8)}, WorkersBlamed())


def small_reads_of_a_thread(random: Random) -> Draw:
    """A prefetching thread reads many small pieces from a disk that has become slow."""
    pieces = random.randint(3, 8)
    usual = shape(random, 6, 12, loader="thread", read_bytes=pieces << 14, read_chunk_bytes=1 << 14)
    per_s = pieces * 1000 / (gpu_ms(usual) * random.uniform(1.6, 2.8))
    return fit(random, usual, None, Disk(dataset_megabytes=96, read_iops=int(per_s)))


def mapped_file(random: Random) -> Draw:
    """Pages of a mapped file are touched where the launches come from; the disk is slow."""
    pages = random.randint(2, 6)
    usual = shape(random, 6, 12, loader="mapped", pages=pages)
    per_s = pages * 1000 / (gpu_ms(usual) * random.uniform(1.5, 2.8))
    return fit(random, usual, None, Disk(dataset_megabytes=160, read_iops=int(per_s)))


CASES = (
    Case("one-late-worker", ("data-starvation",), one_late_worker, blames=True),
    # Making objects keeps the interpreter from the main thread, too.
    Case("unpickling-thread", ("data-starvation",), unpickling, frozenset({"gc-pause"}),
         instead=frozenset({"gil-contention"})),
    Case("decoder-in-c", ("data-starvation",), decoder_in_c),
    Case("simulator-behind-a-pipe", ("data-starvation",), simulator, blames=True,
         instead=frozenset({"slow-peer"})),
    Case("small-reads-of-a-thread", ("disk-wait",), small_reads_of_a_thread, frozenset({"data-starvation"})),
    Case("mapped-file", ("disk-wait",), mapped_file, frozenset({"data-starvation", "memory-pressure"})),
)  # fmt: skip
