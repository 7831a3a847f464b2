"""What the buckets of accounted time are called among people, and which part of it each is."""

from __future__ import annotations

from collections.abc import Mapping

BUCKET_WORDS: dict[str, str] = {
    "gpu_wait": "waiting for the GPU",
    "cuda_cpu": "inside CUDA calls",
    "host_cpu": "on the CPU outside CUDA",
    "runqueue": "waiting for a core",
    "lock_wait": "waiting for a lock",
    "disk_wait": "waiting for disk",
    "memory_wait": "waiting for memory",
    "peer_wait": "waiting for another process or thread",
    "net_wait": "waiting for the network",
    "sleep": "asleep on purpose",
    "unexplained": "unexplained",
    "lost": "not seen, records were lost",
}
ON_CPU = frozenset({"cuda_cpu", "host_cpu"})


def bucket_words(bucket: str) -> str:
    return BUCKET_WORDS.get(bucket, bucket)


def off_cpu(time_ns: dict[str, int]) -> dict[str, int]:
    """What of it the thread did not run; `lost` is neither."""
    return {name: ns for name, ns in time_ns.items() if name not in ON_CPU and name != "lost"}


def percents(time_ns: Mapping[str, int], decimals: int = 1) -> list[tuple[str, float]]:
    """Each part's percentage, largest first, those that round to 0 left out; together exactly 100."""
    time_ns = {name: ns for name, ns in time_ns.items() if ns > 0}
    total, steps = sum(time_ns.values()), 100 * 10**decimals
    parts = {name: ns * steps // total for name, ns in time_ns.items()}
    by_rest = sorted(time_ns, key=lambda name: -(time_ns[name] * steps % total))
    for name in by_rest[: steps - sum(parts.values())]:
        parts[name] += 1
    ordered = sorted(time_ns, key=lambda name: -time_ns[name])
    return [(name, parts[name] / 10**decimals) for name in ordered if parts[name]]
