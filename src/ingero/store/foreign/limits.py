"""What a recording of the Go implementation cannot show, for every answer made from it.

Kept in `meta` as JSON under `not_watched:ID`, ID being the recording's number: a
list of {"what", "why"}, as `explain --json` has it.
"""

from __future__ import annotations

NOT_WATCHED: tuple[tuple[str, str], ...] = (
    (
        "sched",
        "the recording does not say why a thread was off its core: only waits that match a block read"
        " or look like a timer are named, the rest is unexplained",
    ),
    ("culprits", "who had the core meanwhile was not recorded"),
    ("wakers", "who ended a wait was not recorded"),
    ("threads", "the scheduler was watched for main threads and for tasks begun during the recording"),
    ("memory", "faults and reclaim were not recorded, only page allocations counted"),
    ("nccl", "collectives were not stored"),
    ("gpu", "neither the device of a call nor the state of GPUs was stored"),
    ("xid", "GPU faults were not recorded"),
    ("tcp", "a retransmit was stored with whatever process it interrupted, not its owner"),
    ("lines", "the line of a Python frame is where its function begins"),
)
SELECTED = (
    "calls",
    "single calls are stored by selection, slow ones and synchronising ones foremost;"
    " counts and totals are true where the recording has aggregates",
)
NO_TOTALS = (
    "operations",
    "the recording has no aggregates: counts are of stored rows and may be too low",
)
RECORD_ALL = "record-all"


def not_watched(flags: str, has_totals: bool) -> list[dict[str, str]]:
    """The list for one recording."""
    found = list(NOT_WATCHED)
    if RECORD_ALL not in flags:
        found.append(SELECTED)
    if not has_totals:
        found.append(NO_TOTALS)
    return [{"what": what, "why": why} for what, why in found]
