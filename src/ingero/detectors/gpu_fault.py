"""GPU fault: the driver reported an Xid error, or the GPU's own counters tell of damage.

Shows as   the driver's own report of a fault, with its number; memory errors that were not
           put right, rows of memory that could not be replaced, a GPU that does not answer.
Proof      that report, or those counters.
Not this   an error a call returned (cuda-error), though one may follow the other; memory
           errors that were put right, or from before the recording.
Blind to   Xid errors of drivers without the tracepoint; counters without NVML.
Severity   CRITICAL.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Timeline
from ingero.detectors.commands import sanitised
from ingero.detectors.detector import Detector, State
from ingero.model.facts import Incident
from ingero.model.finding import Fix, Proof, Severity
from ingero.model.gpu_facts import CardTrouble

MEANINGS = {
    13: "the program made the GPU fault",
    31: "the program accessed memory it may not",
    43: "the GPU stopped processing",
    45: "the program's work was stopped",
    48: "uncorrectable memory error",
    62: "the GPU halted",
    63: "memory rows were remapped",
    64: "remapping memory rows failed",
    74: "an NVLink error",
    79: "the GPU fell off the bus",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "the GPU's processor does not answer",
}
HARDWARE = frozenset({48, 62, 63, 64, 74, 79, 94, 95, 119})


def _by_process(timeline: Timeline) -> Iterator[list[Incident]]:
    """The faults of each process, those of the GPU itself first."""
    grouped: dict[int, list[Incident]] = {}
    for each in timeline.facts.xids:
        grouped.setdefault(each.pid or 0, []).append(each)
    for found in grouped.values():
        yield sorted(found, key=lambda each: (each.code not in HARDWARE, each.at_ns))


def find(timeline: Timeline) -> Iterator[State]:
    yield from _reported(timeline)
    for trouble in timeline.facts.cards.trouble:
        yield _counted(timeline, trouble)


def _counted(timeline: Timeline, trouble: CardTrouble) -> State:
    """What a GPU's counters tell; of the job on it, where there is one."""
    card = timeline.cards.card(trouble.gpu_id)
    words = [
        *(["does not answer any more"] if trouble.lost else []),
        *(
            [f"has {trouble.ecc_uncorrected} new uncorrected memory errors"]
            if trouble.ecc_uncorrected
            else []
        ),
        *(["could not replace a row of its memory"] if trouble.remap_failed else []),
    ]
    on_it = [job for job in timeline.jobs if trouble.gpu_id in timeline.cards.of(job.pid)]
    victim = on_it[0] if len(on_it) == 1 else None
    return State(
        victim.pid if victim else 0,
        victim.comm if victim else "GPU",
        f"GPU {trouble.gpu_id} {' and '.join(words)}",
        trouble.first_ns,
        trouble.last_ns,
        (
            Proof(
                f"{card.name} {trouble.gpu_id} ({card.uuid or 'no UUID'}): {', '.join(words)}",
                "SELECT timestamp_ns, lost, ecc_uncorrected, remap_failed FROM gpu_samples"
                f" WHERE gpu_id = {trouble.gpu_id} AND timestamp_ns BETWEEN {trouble.first_ns}"
                f" AND {trouble.last_ns}",
            ),
        ),
        Severity.CRITICAL,
        fixes=(
            Fix("Drain the node and test the GPU.", "dcgmi diag -r 3"),
            Fix("Read the driver's log.", "sudo dmesg | grep -i xid"),
        ),
    )


def _reported(timeline: Timeline) -> Iterator[State]:
    for found in _by_process(timeline):
        worst = found[0]
        code = worst.code or 0
        others = sorted({each.code or 0 for each in found} - {code})
        also = f"; also Xid {', '.join(map(str, others))}" if others else ""
        hardware = code in HARDWARE
        yield State(
            worst.pid or 0,
            worst.comm or "GPU",
            f"GPU fault Xid {code}: {MEANINGS.get(code, 'see the driver manual')}{also}",
            min(each.at_ns for each in found),
            max(each.at_ns for each in found),
            tuple(Proof(each.text, None, [each.event_id]) for each in found[:3]),
            Severity.CRITICAL,
            fixes=(
                Fix("Drain the node and test the GPU.", "dcgmi diag -r 3")
                if hardware
                else sanitised(timeline.facts, found[0].pid or 0),
                Fix("Read the driver's log.", "sudo dmesg | grep -i xid"),
            ),
        )


DETECTOR = Detector(
    name="gpu-fault",
    needs=frozenset(),
    either=frozenset({"xid", "gpu"}),
    find=find,
    severity="CRITICAL",
)
