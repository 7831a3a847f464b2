"""What watching costs, and what watching less is called where it is stored and shown."""

from __future__ import annotations

from dataclasses import dataclass

# What an action of the governor names besides functions, and how it is called when all is watched.
RECORDS, TIMING = "records and stacks", "timing of "
ALL_DUE, ALL_TIMED, ALL_THE_TIME = "all that are due", "every call timed", "all the time"


@dataclass(frozen=True, slots=True)
class HitCost:
    """Nanoseconds a traced call costs more than an untraced one."""

    shape: str  # that it was attached in
    ns: float  # timed: entry and return
    counted_ns: float = 0.0  # counted at its entry alone
    passed_ns: float = 0.0  # of an operation that is closed for the moment
    record_ns: float = 0.0  # a record in the ring, on top; its stack has its own measured cost
