"""Launch-bound: so many tiny CUDA kernels that launching them takes longer than running them.

Shows as   the feeding thread busy launching all the time and hardly ever waiting for the GPU.
Proof      launches per second, time per launch, and almost no waiting for the GPU.
Not this   a thread that waits for the GPU afterwards, or whose launches wait for room in
           its queue: then the GPU is the limit; a few hundred launches per iteration, unless
           the job launched them as graphs before; launches that only fill a graph being
           captured (graph-trouble).
Blind to   how long the CUDA kernels run. A graph counts as one launch. Iterations are told
           apart by their waits for the GPU, or by the rarest call that comes more often (a copy,
           a memset). If even that call comes ten times in every iteration, up to ten times as
           many launches are not noticed. A job that rarely waits for the GPU and only launches
           seems to launch too many. Python work between launches counts as launching: some
           milliseconds of it may be called launch-bound, although it is data-starvation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Spent, Timeline, together
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.model.finding import Fix, Proof
from ingero.units import format_ns

WAITS_SHARE = 0.10  # of wall time: more, and the GPU is behind often enough
LAUNCHING_SHARE = 0.50  # of wall time: with less, something else takes most of it
PER_LAUNCH_NS = 50_000  # with more host time per launch it is not launching that takes it
PER_STEP = 400  # an ordinary small model has fewer per iteration, and that is no fault
PER_STEP_WITHOUT_GRAPHS = 100  # where they went as graphs before: there fewer are a fault, too
OFTENER = ("copy", "set", "event", "collective", "graph")  # what ordinary iterations do once or more often
ROUGH = 0.5  # of a count, that it may be off by: it says nothing
IN_CALL_NS = 15_000  # a launch takes 2 to 8 us; longer, it waits for room in the GPU's queue
IN_A_GRAPH_NS = 3_400  # a tiny kernel inside a graph, launch and all (NVIDIA: one of 2.9 us takes 3.4)


def _iterations(job: Job) -> float:
    """How many there may be in what counts as one: as many as the rarest other call says.

    A job that waits only now and then, to log, has several.
    """
    numbers = [each.number for each in job.slices if not each.cold]
    steps = sum(job.steps(number) for number in numbers)
    others = [[job.spent(number, kind) for number in numbers] for kind in OFTENER]
    at_most = [sum(spent.count + spent.error for spent in each) for each in others]
    return min((count / steps for count in at_most if count > steps > 0), default=1.0)


def _enough(job: Job) -> dict[int, float]:
    """Launches from one wait for the GPU to the next that are too many, by slice."""
    enough, had_graphs, iterations = {}, False, _iterations(job)
    for each in job.slices:
        graphs, steps = job.spent(each.number, "graph").count, job.steps(each.number)
        had_graphs |= bool(steps) and graphs >= steps / 2
        per_step = PER_STEP_WITHOUT_GRAPHS if had_graphs and not graphs else PER_STEP
        enough[each.number] = per_step * iterations
    return enough


def _surely_many(job: Job, per_step: dict[int, float]) -> bool:
    """Where launches were watched in part, a slice's count is a rough one; all slices together say more."""
    known = [(job.spent(each.number, "launch"), each.number) for each in job.slices]
    known = [
        (spent, number)
        for spent, number in known
        if spent.count and job.steps(number) and spent.error <= ROUGH * spent.count
    ]
    surely = sum(spent.count - spent.error for spent, _ in known)
    return bool(known) and surely >= sum(per_step[number] * job.steps(number) for _, number in known)


def _launching_ns(job: Job, each: SliceLedger, per_step: float, surely_many: bool) -> int:
    launches = job.spent(each.number, "launch").count
    enough = per_step * max(job.steps(each.number), 1)
    surely = launches - job.spent(each.number, "launch").error
    if not launches or (surely < enough and not (surely_many and launches >= enough)):
        return 0
    if job.spent(each.number, "launch").ns > IN_CALL_NS * launches:
        return 0
    if each.ns["gpu_wait"] > WAITS_SHARE * each.wall_ns:
        return 0
    busy = {name: each.ns[name] - each.gap[name] for name in ("cuda_cpu", "host_cpu")}
    ns = sum(busy.values()) - job.capturing.get(each.number, 0)
    if ns < LAUNCHING_SHARE * each.wall_ns or ns / launches > PER_LAUNCH_NS:
        return 0
    return ns


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        per_step = _enough(job)
        surely_many = _surely_many(job, per_step)
        for each in job.slices:
            ns = 0 if each.cold else _launching_ns(job, each, per_step[each.number], surely_many)
            if ns:
                launches = job.spent(each.number, "launch").count
                won = max(0, ns - launches * IN_A_GRAPH_NS)
                yield Evidence(job, each, won, (Lost("cuda_cpu", ns, job.pid, job.tid, job.comm),), won)


def _launches(case: Case) -> Spent:
    return together(case.job.spent(each.slice.number, "launch") for each in case.evidence)


def _launching(case: Case) -> int:
    return sum(lost.ns for lost in case.causes)


def headline(case: Case) -> str:
    per_launch = format_ns(_launching(case) / max(_launches(case).count, 1))
    return f"{case.job.comm} spends its time launching tiny kernels: {per_launch} of the CPU for each"


def prove(case: Case) -> list[Proof]:
    launches = _launches(case)
    return [
        Proof(
            f"{launches.calls} launches: {format_ns(_launching(case))} of launching,"
            f" {format_ns(launches.ns)} of it inside the calls",
            "SELECT op, SUM(count), SUM(sum_ns) FROM operations WHERE op LIKE '%Launch%'"
            f" AND pid = {case.job.pid} AND {case.span_sql} GROUP BY op",
        )
    ]


def advise(case: Case) -> list[Fix]:
    return [
        Fix(
            "Launch them as one CUDA graph (torch.cuda.graphs, or let PyTorch do it).",
            code="torch.compile(model, mode='reduce-overhead')",
        ),
        Fix("Or give the GPU more per launch: larger batches, fused operations, foreach optimisers."),
    ]


DETECTOR = Detector(
    name="launch-bound",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.75,
    lines=(
        LineChoice("count", "launches most", kinds=("launch",)),
        LineChoice("sample", "computes", of="feeder"),
    ),
)
