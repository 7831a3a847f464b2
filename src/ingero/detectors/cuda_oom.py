"""CUDA out of memory: an allocation on the GPU failed.

Shows as   status 2 of an allocation, or of a call that needs memory.
Proof      the failed calls; where the driver tells (NVML), how full the GPU was and who held it.
Not this   the host's memory (oom-kill, memory-pressure).
Blind to   fragmentation inside a framework's own pool.
Severity   HIGH: the job stops, or frees its cache and goes on slowly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ingero.correlate.gpu_use import GpuUser, known
from ingero.correlate.loss import LossPart
from ingero.correlate.timeline import Timeline
from ingero.detectors import cuda_error
from ingero.detectors.cuda_error import by_process, failed
from ingero.detectors.detector import Detector, LineChoice, State
from ingero.model.finding import Fix, Proof, Severity
from ingero.units import format_bytes

ROOM_LEFT = 0.75  # of the memory in use: a GPU fuller than that has no room for a large tensor


def find(timeline: Timeline) -> Iterator[State]:
    mine = [
        e for e in timeline.facts.errors if e.code == cuda_error.OUT_OF_MEMORY and not e.op.startswith("nccl")
    ]
    for pid, found in by_process(mine).items():
        comm = timeline.facts.comm(pid)
        count = max(each.count for each in found)  # runtime and driver both tell of it
        state = failed(
            found,
            comm,
            f"{comm}: {found[0].op} ran out of GPU memory {count} times",
            Severity.HIGH,
            (
                Fix(
                    "See which processes hold GPU memory.",
                    "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
                ),
                Fix("Use smaller batches, or gradient accumulation."),
                Fix(
                    "If memory is fragmented, set this and start the job again.",
                    "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                ),
            ),
        )
        proofs, who = _held(timeline, pid, state.first_ns)
        yield replace(state, proofs=(*state.proofs, *proofs), who=who)


def _held(timeline: Timeline, pid: int, at_ns: int) -> tuple[list[Proof], tuple[LossPart, ...]]:
    """How full the process's GPUs were when the call failed, and who else had of them."""
    number = (at_ns - timeline.facts.origin_ns) // timeline.facts.slice_ns
    proofs, others = [], []
    for gpu_id in sorted(timeline.cards.of(pid)):
        row = timeline.cards.at(number, gpu_id)
        row = row if row is not None else timeline.cards.at(number - 1, gpu_id)
        used = known(row["memory_used_bytes"]) if row is not None else None
        if row is None or used is None:
            continue
        holders = [user for user in timeline.cards.users(int(row["slice"]), {gpu_id}) if user.memory_bytes]
        proofs.append(_full(timeline, gpu_id, used, holders, at_ns))
        others += [
            LossPart(user.pid, timeline.cards.name(user.pid), 0) for user in holders if user.pid != pid
        ]
    return proofs, tuple(others)


def _full(timeline: Timeline, gpu_id: int, used: float, holders: list[GpuUser], at_ns: int) -> Proof:
    name, total = timeline.cards.name, timeline.cards.card(gpu_id).memory_bytes
    held = [f"{name(user.pid)} (pid {user.pid}) {format_bytes(user.memory_bytes)}" for user in holders[:5]]
    return Proof(
        f"GPU {gpu_id} had {format_bytes(used)} of {format_bytes(total)} in use"
        f"{', held by ' + ', '.join(held) if held else ''}{_hint(used / total) if total else ''}",
        f"SELECT * FROM gpu_processes WHERE gpu_id = {gpu_id} AND timestamp_ns"
        f" BETWEEN {at_ns - timeline.facts.slice_ns} AND {at_ns}",
    )


def _hint(used_share: float) -> str:
    """A failed allocation on a GPU with much room left: no single piece was large enough."""
    if used_share > ROOM_LEFT:
        return ""
    return ": there was room, so the request was very large or the free memory is fragmented"


DETECTOR = Detector(
    name="cuda-oom",
    needs=frozenset({"calls"}),
    find=find,
    severity="HIGH",
    lines=(LineChoice("event", "fails"), LineChoice("bytes", "allocates most", kinds=("alloc",))),
)
