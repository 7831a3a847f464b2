"""CUDA graph trouble: graphs are captured again and again, never launched, or fail to capture.

Shows as   nearly as many instantiations as launches; steps that became longer by the time that
           making graphs takes; captures that end in an error.
Proof      the counts of capture, instantiation and launch, the time from the begin of
           each capture to its end, the time in instantiating, and the failed calls.
Not this   captures before the first launch; a new graph from time to time; graphs of a
           server that nobody has asked yet.
Blind to   how long a graph runs.
Severity   by the time capturing takes, at least MEDIUM where graphs are hardly launched; never launched: LOW.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import cuda_error
from ingero.detectors.cuda_error import proof_of
from ingero.detectors.detector import Case, Detector, LineChoice, State
from ingero.model.facts import ErrorFact
from ingero.model.finding import Fix, Proof, Severity, severity_of
from ingero.units import format_ns

AGAIN = 0.25  # instantiations per launch
LEAST = 6  # a handful of shapes is usual
SLICES = 2  # in which it happens: once is a start, or a new shape
NEVER_NS = 60_000_000_000  # a server captures first and is asked later


def _counts(timeline: Timeline, job: Job, numbers: list[int]) -> tuple[dict[str, int], int]:
    """Calls by what they do, and the time that making graphs takes.

    What is launched into a graph takes far longer than the calls that begin and end it.
    """
    found = {"capture": 0, "instantiate": 0, "launch": 0}
    ns = 0
    for number in numbers:
        for row in timeline.tables.operations.get((number, job.pid), ()):
            known = timeline.facts.ops.get(int(row["op"]))
            if known is None or int(row["caller"]) == 1:  # the runtime's own call of the driver
                continue
            name = known.name
            for part, word in (
                ("EndCapture", "capture"),
                ("GraphInstantiate", "instantiate"),
                ("GraphLaunch", "launch"),
            ):
                if part in name:
                    found[word] += int(row["count"])
            if "GraphInstantiate" in name or ("Capture" in name and not job.capturing):
                ns += int(row["sum_ns"])
        ns += job.capturing.get(number, 0)
    return found, ns


def find(timeline: Timeline) -> Iterator[State]:
    for job in timeline.jobs:
        settled = [each for each in job.slices if not each.cold]
        launched = [each.number for each in settled if _counts(timeline, job, [each.number])[0]["launch"]]
        if launched:  # what was captured before the first launch is the start
            settled = [each for each in settled if each.number > launched[0]] or settled
        numbers = [each.number for each in settled]
        if not numbers:
            continue
        counts, ns = _counts(timeline, job, numbers)
        wall = sum(each.wall_ns for each in settled)
        failed = [e for e in timeline.facts.errors if e.pid == job.pid and e.code in cuda_error.CAPTURE]
        state = _state(timeline, job, numbers, counts, ns, wall)
        if failed:
            yield _failed(job, failed)
        elif state:
            yield state


ONCE_A_SHAPE = (
    Fix(
        "Capture once per shape and launch it again; pad inputs to a few fixed shapes.",
        code="graphs = {}; graph = graphs.get(shape) or graphs.setdefault(shape, capture(shape))",
    ),
    Fix(
        "Change parameters in place instead of capturing again (cudaGraphExecUpdate).",
        code="from cuda.bindings import runtime; runtime.cudaGraphExecUpdate(executable, graph)",
    ),
)


def headline(case: Case) -> str:
    return f"{case.job.comm} captures CUDA graphs again and again"


def prove(case: Case) -> list[Proof]:
    numbers = [each.slice.number for each in case.evidence]
    counts, ns = _counts(case.timeline, case.job, numbers)
    return [_proof(case.job, counts, ns, sum(each.slice.wall_ns for each in case.evidence), case.span_sql)]


def _proof(job: Job, counts: dict[str, int], ns: int, wall: int, span_sql: str) -> Proof:
    return Proof(
        f"{counts['capture']} captures, {counts['instantiate']} instantiations, {counts['launch']} launches;"
        f" {format_ns(ns)} of {format_ns(wall)} in making graphs",
        "SELECT op, SUM(count), SUM(sum_ns) FROM operations WHERE layer = 'graph'"
        f" AND pid = {job.pid} AND {span_sql} GROUP BY op",
    )


def _failed(job: Job, failed: list[ErrorFact]) -> State:
    return State(
        job.pid,
        job.comm,
        f"{job.comm}: capturing a CUDA graph failed ({cuda_error.name_of(failed[0].code)})",
        min(each.first_ns for each in failed),
        max(each.last_ns for each in failed),
        tuple(proof_of(each) for each in failed[:3]),
        Severity.MEDIUM,
        job.tid,
        failed[0].op,
        fixes=(Fix("While capturing, do not synchronise and do not use other streams."),),
    )


def _instantiates(timeline: Timeline, job: Job, number: int) -> int:
    return _counts(timeline, job, [number])[0]["instantiate"]


def _state(
    timeline: Timeline, job: Job, numbers: list[int], counts: dict[str, int], ns: int, wall: int
) -> State | None:
    again = counts["instantiate"] >= LEAST and counts["instantiate"] >= AGAIN * counts["launch"] > 0
    again = again and sum(_instantiates(timeline, job, number) > 0 for number in numbers) >= SLICES
    never = counts["instantiate"] > 0 and not counts["launch"] and wall >= NEVER_NS
    if not again and not never:
        return None
    first, last = timeline.facts.at_ns(numbers[0]), timeline.facts.at_ns(numbers[-1] + 1)
    by_time = severity_of(ns / max(wall, 1))
    severity = (
        Severity.LOW if never else min(by_time or Severity.MEDIUM, Severity.MEDIUM, key=lambda s: s.rank)
    )
    title = (
        f"{job.comm} made a CUDA graph and never launched it"
        if never
        else f"{job.comm} captures its CUDA graph again and again: {counts['instantiate']} times for"
        f" {counts['launch']} launches"
    )
    return State(
        job.pid,
        job.comm,
        title,
        first,
        last,
        (_proof(job, counts, ns, wall, f"bucket_start_ns >= {first} AND bucket_start_ns < {last}"),),
        severity,
        job.tid,
        fixes=ONCE_A_SHAPE,
    )


DETECTOR = Detector(
    name="graph-trouble",
    needs=frozenset({"calls"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=lambda _: list(ONCE_A_SHAPE),
    severity="at least MEDIUM; LOW when never launched",
    lines=(
        LineChoice("event", "fails"),
        LineChoice("ns", "makes graphs", kinds=("graph",), named="Capture|Instantiate"),
    ),
)
