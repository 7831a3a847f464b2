"""Cold start: contexts, code and first calls, which every job pays once.

Shows as   slow calls at the beginning: creating the context, loading modules, compiling.
Proof      the time inside those calls.
Not this   slowness after start-up; loading waits for the disk (disk-wait).
Blind to   start-up before the first CUDA call.
Severity   LOW: it is kept apart so that nobody takes it for slowness.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import COLD_KINDS, Timeline
from ingero.detectors.detector import Detector, LineChoice, State
from ingero.model.finding import Fix, Proof, Severity
from ingero.units import SECOND, format_ns

LEAST_NS = 2 * SECOND  # creating a context and loading the libraries takes one
LEAST_SHARE = 0.20  # of what was seen of the job


def find(timeline: Timeline) -> Iterator[State]:
    for job in timeline.jobs:
        cold = [each for each in job.slices if each.cold]
        ns = sum(job.spent(each.number, *COLD_KINDS).ns for each in cold)
        if ns < LEAST_NS or ns < LEAST_SHARE * job.wall_ns:
            continue
        first, last = timeline.facts.at_ns(cold[0].number), timeline.facts.at_ns(cold[-1].number + 1)
        yield State(
            job.pid,
            job.comm,
            f"{job.comm} spent {format_ns(ns)} on start-up: creating contexts and loading code",
            first,
            last,
            (
                Proof(
                    f"{format_ns(ns)} in calls that create contexts and load code",
                    "SELECT op, SUM(count), SUM(sum_ns) FROM operations WHERE (op LIKE '%Ctx%' OR"
                    " op LIKE 'cuInit%' OR op LIKE '%Module%' OR op LIKE '%Library%')"
                    f" AND pid = {job.pid} AND bucket_start_ns >= {first}"
                    f" AND bucket_start_ns < {last} GROUP BY op",
                ),
            ),
            Severity.LOW,
            job.tid,
            fixes=(
                Fix("Load code when it is first used.", "export CUDA_MODULE_LOADING=LAZY"),
                Fix(
                    "Keep compiled code between runs: put the caches into folders that persist.",
                    "export CUDA_CACHE_PATH=~/.nv/ComputeCache TORCHINDUCTOR_CACHE_DIR=~/.cache/inductor",
                ),
                Fix("Run a warm-up request or iteration before measuring."),
            ),
        )


DETECTOR = Detector(
    name="cold-start",
    needs=frozenset({"calls"}),
    find=find,
    severity="LOW",
    lines=(LineChoice("ns", "starts", kinds=COLD_KINDS),),
)
