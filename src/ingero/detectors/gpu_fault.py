"""GPU fault: the driver reported an Xid error.

Shows as   the driver's own report of a fault, with its number.
Proof      that report.
Not this   an error a call returned (cuda-error), though one may follow the other.
Blind to   drivers without the tracepoint; ECC errors that were corrected.
Severity   CRITICAL.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Timeline
from ingero.detectors.detector import Detector, State
from ingero.model.finding import Fix, Proof, Severity

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


def find(timeline: Timeline) -> Iterator[State]:
    by_code: dict[int, list[int]] = {}
    for at, each in enumerate(timeline.facts.xids):
        by_code.setdefault(each.code or 0, []).append(at)
    for code, places in by_code.items():
        found = [timeline.facts.xids[at] for at in places]
        first = found[0]
        hardware = code in HARDWARE
        yield State(
            first.pid or 0,
            first.comm or "GPU",
            f"GPU fault Xid {code}: {MEANINGS.get(code, 'see the driver manual')}",
            found[0].at_ns,
            found[-1].at_ns,
            tuple(Proof(each.text, None, [each.event_id]) for each in found[:3]),
            Severity.CRITICAL,
            fixes=(
                Fix("Drain the node and test the card.", "dcgmi diag -r 3")
                if hardware
                else Fix("Find the access in the program.", "compute-sanitizer python train.py"),
                Fix("Read the driver's log.", "dmesg | grep -i xid"),
            ),
        )


DETECTOR = Detector(
    name="gpu-fault",
    title="The GPU reported a fault",
    needs=frozenset({"xid"}),
    find=find,
    severity="CRITICAL",
)
