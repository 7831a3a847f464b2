"""Copy-bound: moving data to or from the GPU takes the time, and slowly.

Shows as   the feeding thread inside copy calls.
Proof      bytes and time of the copies. Large copies that are far slower than the bus go
           through pageable memory. Of thousands of small copies, the calls cost the time. Or
           the GPU's PCI Express link: while it works, it has fewer lanes or a lower
           generation than GPU and slot can do.
Not this   copies that are few, or nearly as quick as the bus; waiting for the GPU at a
           copy; small copies that read a result (sync-heavy); copies of other threads.
Blind to   copies that run on the GPU's own engine while the host goes on. If the thread spins
           until the GPU comes to its copy to the host, how much of that time is copying: all of
           it counts as waiting then. If the thread sleeps, the time after it was woken is copying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ingero.correlate.gpu_use import known
from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Spent, Timeline, is_reading, together
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.model.finding import Fix, Proof
from ingero.model.gpus import link_bytes_per_ns
from ingero.model.layout import Bucket
from ingero.units import format_bytes, format_ns

BUS_BYTES_PER_NS = 25.0  # pinned memory over PCIe 4 x16; newer buses carry more
SLOW_BYTES_PER_NS = 16.0  # pageable copies reach 3 to 12
LINK_SHARE = 0.75  # of what a link carries, a pinned copy reaches
SLOW_LINK_SHARE = 0.5  # of it, pageable copies do not reach
DEGRADED = 0.6  # of the link's rate: half the lanes, or a generation less
LARGE_BYTES = 128 << 10  # below it the call itself counts for more than the bytes
SMALL_BYTES = 64 << 10  # 3 us on the bus, less than the call that copies it
WITHIN = "DtoD"  # in the names of copies from the GPU to the GPU
MANY_PER_STEP = 16  # inputs, labels, masks, a few scalars: an ordinary batch has fewer


def _copies(timeline: Timeline, job: Job, number: int) -> list[Spent]:
    """By operation: sizes differ by direction. Values read back are no matter of bytes, nor is what the GPU
    copies within its own memory."""
    return [
        Spent(
            int(row["count"]),
            int(row["sum_ns"]),
            int(row["bytes"]),
            gpu_wait_ns=int(row["split"][Bucket.GPU_WAIT]),
            cpu_ns=int(row["split"][Bucket.CUDA_CPU]),
        )
        for row in timeline.outermost(number, job.pid)
        if timeline.tables.op_kind(int(row["op"])) == "copy" and row["count"] and not is_reading(row)
        if WITHIN not in timeline.facts.ops[int(row["op"])].name
    ]


def _copying_ns(spent: Spent) -> int:
    """On a core: without the time in which a blocking copy waited for the GPU, or for its core."""
    if spent.cpu_ns or spent.gpu_wait_ns:
        return spent.cpu_ns
    return spent.ns  # recorded by somebody who does not tell


@dataclass(frozen=True, slots=True)
class Bus:
    """What copies of a job can reach: an old bus carries less than a pageable copy over a new one."""

    slow: float = SLOW_BYTES_PER_NS
    full: float = BUS_BYTES_PER_NS


def _bus(timeline: Timeline, job: Job) -> Bus:
    cards = [timeline.cards.card(gpu_id) for gpu_id in timeline.cards.of(job.pid)]
    links = [link for card in cards if (link := link_bytes_per_ns(card.pcie_gen_max, card.pcie_width_max))]
    if not links:
        return Bus()
    return Bus(
        min(SLOW_BYTES_PER_NS, SLOW_LINK_SHARE * min(links)), min(BUS_BYTES_PER_NS, LINK_SHARE * min(links))
    )


def _slow_ns(spent: Spent, bus: Bus) -> int:
    """Large copies: what a pinned one would have saved.

    It takes the bus's time, which the wait of a copy to the host holds already.
    """
    ns = _copying_ns(spent)
    if spent.bytes / spent.count < LARGE_BYTES or spent.bytes / max(ns, 1) >= bus.slow:
        return 0
    return int(ns - max(0, spent.bytes / bus.full - spent.gpu_wait_ns))


def _carries_more(row: np.void, copies: list[Spent], each: SliceLedger, rate: float) -> bool:
    """Whether more was seen to pass than such a link carries: some virtual machines make one up."""
    seen = max(known(row["pcie_rx_bytes_per_s"]) or 0, known(row["pcie_tx_bytes_per_s"]) or 0) / 1e9
    return seen > rate or sum(one.bytes for one in copies) / max(each.wall_ns, 1) > rate


def _link(timeline: Timeline, job: Job, each: SliceLedger, copies: list[Spent]) -> Evidence | None:
    """Time the bytes took longer because the link is not what it can be."""
    size = sum(one.bytes for one in copies)
    for row in timeline.cards.during(each.number, job.pid):
        card = timeline.cards.card(int(row["gpu_id"]))
        generation, width = known(row["pcie_gen"]), known(row["pcie_width"])
        now = link_bytes_per_ns(int(generation or 0), int(width or 0))
        best = link_bytes_per_ns(card.pcie_gen_max, card.pcie_width_max)
        if not now or not best or now > DEGRADED * best or _carries_more(row, copies, each, now):
            continue
        bucket = max(("gpu_wait", "cuda_cpu"), key=lambda name: each.ns[name])
        ns = min(each.ns[bucket], int(size / now - size / best))
        note = (
            f"the link of GPU {card.gpu_id} is PCIe {generation:.0f} x{width:.0f},"
            f" it could be {card.pcie_gen_max} x{card.pcie_width_max}"
        )
        if ns > 0:
            return Evidence(job, each, ns, (Lost(bucket, ns, job.pid, job.tid, job.comm),), note=note)
    return None


def _small_ns(job: Job, each: SliceLedger, copies: list[Spent]) -> int:
    """Small copies: their calls, and the host's part of making them."""
    small = [one for one in copies if one.bytes / one.count <= SMALL_BYTES]
    made = sum(one.count for one in small)
    # Reading a result is a small copy and a wait: sync-heavy's matter.
    count = made - job.spent(each.number, "sync").count
    if count < MANY_PER_STEP * max(job.steps(each.number), 1):
        return 0
    calls = made + job.spent(each.number, "launch", "sync", "set", "event").count
    host = (each.ns["host_cpu"] + each.ns["cuda_cpu"]) * count // calls
    ns = sum(_copying_ns(one) for one in small) * count // made
    return max(ns, min(host, 4 * ns))


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        bus = _bus(timeline, job)
        for each in job.slices:
            copies = [] if each.cold else _copies(timeline, job, each.number)
            slow = min(sum(_slow_ns(one, bus) for one in copies), each.ns["cuda_cpu"])  # not others' copies
            ns = max(slow, _small_ns(job, each, copies))
            link = _link(timeline, job, each, copies)
            if link and link.ns >= ns:
                yield link
            elif ns > 0:
                yield Evidence(job, each, ns, (Lost("cuda_cpu", ns, job.pid, job.tid, job.comm),))


def _total(case: Case) -> Spent:
    """The copies that make up most of it: large ones, or small ones where there are none."""
    copies = [one for each in case.evidence for one in _copies(case.timeline, case.job, each.slice.number)]
    bus = _bus(case.timeline, case.job)
    large = [one for one in copies if _slow_ns(one, bus)]
    return together(large or copies)


def _note(case: Case) -> str:
    """What is wrong with the link, where that is most of it."""
    notes = [each.note for each in case.evidence if each.note]
    return notes[-1] if len(notes) * 2 > len(case.evidence) else ""


def headline(case: Case) -> str:
    if note := _note(case):
        return f"{case.job.comm} copies over a slow link: {note}"
    total = _total(case)
    size = total.bytes / max(total.count, 1)
    if size <= SMALL_BYTES:
        return f"{case.job.comm} makes {total.calls} copies of {format_bytes(size)} each"
    took_ns = _copying_ns(total)
    if not took_ns:  # none of them was timed, under the overhead budget
        return f"{case.job.comm} copies to or from pageable memory"
    return f"{case.job.comm} copies at {total.bytes / took_ns:.1f} GB/s, the speed of pageable memory"


def prove(case: Case) -> list[Proof]:
    total = _total(case)
    return [
        Proof(
            f"{total.calls} copies of {format_bytes(total.bytes)}"
            + (
                f" took {format_ns(total.ns)}"
                if total.ns
                else "; none was timed, to stay within the overhead limit"
            ),
            "SELECT op, SUM(count), SUM(bytes), SUM(sum_ns) FROM operations WHERE op LIKE '%Memcpy%'"
            f" AND pid = {case.job.pid} AND {case.span_sql} GROUP BY op",
        ),
        *([_link_proof(case, note)] if (note := _note(case)) else []),
    ]


def _link_proof(case: Case, note: str) -> Proof:
    return Proof(
        f"{note} while it works",
        "SELECT gpu_id, pcie_gen, pcie_width, COUNT(*), MAX(pcie_rx_bytes_per_s) FROM gpu_samples"
        f" WHERE timestamp_ns >= {case.first_ns} AND timestamp_ns < {case.last_ns} GROUP BY 1, 2, 3",
    )


def advise(case: Case) -> list[Fix]:
    if _note(case):
        return [
            Fix(
                "Check what limits the link: the slot, a riser, how the GPU is seated.",
                "sudo lspci -vv -d 10de: | grep LnkSta",
            ),
            Fix("Reset the link, or move the GPU to another slot."),
        ]
    total = _total(case)
    if total.bytes / max(total.count, 1) <= SMALL_BYTES:
        return [Fix("Gather small tensors into one buffer and copy that once per iteration.")]
    return [
        Fix(
            "Copy from pinned memory, asynchronously: pin_memory=True in the DataLoader, and then:",
            code="tensor.to(device, non_blocking=True)",
        )
    ]


DETECTOR = Detector(
    name="copy-bound",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.85,
    lines=(LineChoice("ns", "copies longest", kinds=("copy",)),),
)
