"""GPU throttling: heat, a failing power supply or a lowered limit keeps the GPU below its clock.

Shows as   waits for the GPU that grow while its clock falls.
Proof      the driver's own reasons for the clock while the GPU was busy, and the clock at that
           time, compared with the clock when nothing holds it down.
Not this   a GPU that idles at low clocks; the power limit it was sold with, which a healthy
           GPU at full load reaches; clocks its owner set.
Blind to   how much of the work depends on the clock. A job bound by the GPU's memory loses
           less. Only iterations that became longer tell how much, if some were seen before. A GPU
           that was held down from the first second on is compared with its highest clock, which
           it may not reach with this work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from ingero.correlate.gpu_use import known
from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence
from ingero.model.finding import Fix, Proof
from ingero.model.gpus import HEAT, HW_SLOWDOWN, POWER_BRAKE, SW_POWER_CAP, reason_names
from ingero.units import format_rounded

SLOWER = 0.05  # of its clock: boost clocks move by less from one second to the next
CALM_SLICES = 2  # that tell how long an iteration is when nothing holds the GPU down


@dataclass(frozen=True, slots=True)
class HeldBelow:
    """A GPU held below its clock during a slice."""

    gpu_id: int
    share: float  # of the busy time
    clock_mhz: float
    full_mhz: float
    reasons: int
    temperature_c: float | None

    @property
    def lost_share(self) -> float:
        return self.share * (1 - self.clock_mhz / self.full_mhz)


def _held(timeline: Timeline, job: Job, number: int) -> HeldBelow | None:
    """The GPU of the job that lost most."""
    found = []
    for row in timeline.cards.during(number, job.pid):
        gpu_id, clock = int(row["gpu_id"]), float(row["busy_clock_mhz"])
        share, full = timeline.cards.held_share(row), timeline.cards.full_clock_mhz(gpu_id)
        if share > 0 and full and clock > 0 and clock <= (1 - SLOWER) * full:
            reasons = int(known(row["reasons"]) or 0) & timeline.cards.holding(row)
            found.append(HeldBelow(gpu_id, share, clock, full, reasons, known(row["temperature_c"])))
    return max(found, key=lambda each: each.lost_share, default=None)


def _usual_step_ns(timeline: Timeline, job: Job) -> float | None:
    """An iteration while nothing holds the GPU down; None: not seen often enough."""
    steps = [
        each.wall_ns / job.steps(each.number)
        for each in job.slices
        if not each.cold and job.steps(each.number)
        if any(True for _ in timeline.cards.during(each.number, job.pid))
        and not any(timeline.cards.held_share(row) for row in timeline.cards.during(each.number, job.pid))
    ]
    return median(steps) if len(steps) >= CALM_SLICES else None


def _lost_ns(job: Job, each: SliceLedger, held: HeldBelow, usual_step_ns: float | None) -> int:
    """What the clock took of the waits; no more than iterations got longer."""
    ns = int(each.ns["gpu_wait"] * held.lost_share)
    steps = job.steps(each.number)
    if usual_step_ns is None or not steps:
        return ns
    return max(0, min(ns, int(each.wall_ns - usual_step_ns * steps)))


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs if timeline.cards.watched else ():
        usual = _usual_step_ns(timeline, job)
        for each in job.slices:
            held = None if each.cold else _held(timeline, job, each.number)
            ns = _lost_ns(job, each, held, usual) if held else 0
            if ns > 0:
                yield Evidence(job, each, ns, (Lost("gpu_wait", ns, job.pid, job.tid, job.comm),))


def _worst(case: Case) -> HeldBelow | None:
    found = [_held(case.timeline, case.job, each.slice.number) for each in case.evidence]
    return max((each for each in found if each), key=lambda each: each.lost_share, default=None)


def headline(case: Case) -> str:
    held = _worst(case)
    if held is None:
        return DETECTOR.title
    why = ", ".join(reason_names(held.reasons, plain=True)) or "throttled"
    return f"GPU {held.gpu_id} runs at {held.clock_mhz:.0f} of {held.full_mhz:.0f} MHz: {why}"


def prove(case: Case) -> list[Proof]:
    held = _worst(case)
    if held is None:
        return []
    names = ", ".join(reason_names(held.reasons))
    card = case.timeline.cards.card(held.gpu_id)
    degrees = "" if held.temperature_c is None else f" at {held.temperature_c:.0f} °C"
    slowing = f", which slows down from {card.slowdown_c} °C on" if card.slowdown_c and degrees else ""
    return [
        Proof(
            f"{card.name} {held.gpu_id}{degrees}{slowing}: {names}"
            f" in {format_rounded(held.share)} of its busy samples",
            "SELECT timestamp_ns, gpu_share, sm_clock_mhz, reason_names, power_mw, temperature_c"
            f" FROM gpu_samples WHERE gpu_id = {held.gpu_id} AND timestamp_ns >= {case.first_ns}"
            f" AND timestamp_ns < {case.last_ns}",
        )
    ]


def advise(case: Case) -> list[Fix]:
    held = _worst(case)
    if held is None:
        return []
    fixes = []
    if held.reasons & HEAT:
        fixes.append(Fix("The GPU is too hot: check fans, filters, air flow and the GPUs beside it."))
    if held.reasons & SW_POWER_CAP:
        limit = case.timeline.cards.card(held.gpu_id).power_limit_default_mw or 0
        fixes.append(
            Fix("Restore the default power limit.", f"sudo nvidia-smi -i {held.gpu_id} -pl {limit // 1000}")
        )
    if held.reasons & (POWER_BRAKE | HW_SLOWDOWN) and not held.reasons & HEAT:
        fixes.append(Fix("The hardware slows the GPU down: check power supplies and cables."))
    return [
        *fixes,
        Fix("Watch the reasons live.", f"nvidia-smi -i {held.gpu_id} -q -d PERFORMANCE,TEMPERATURE"),
    ]


DETECTOR = Detector(
    name="gpu-throttled",
    needs=frozenset({"calls", "gpu", "sched"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.85,
)
