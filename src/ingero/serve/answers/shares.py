"""Parts of accounted time, in one place: which bucket belongs to what, and whose share is worth a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ingero.model.finding import Who

# Which part of accounted time each bucket is.

ON_CPU = frozenset({"cuda_cpu", "host_cpu"})


def off_cpu(time_ns: Mapping[str, int], on_core_ns: Mapping[str, int | None]) -> dict[str, int] | None:
    """What of it the thread did not run; `lost` is neither. None: not known.

    `on_core_ns`: of waits that may keep their core, how much did.
    """
    away = {}
    for name, ns in time_ns.items():
        if name in ON_CPU or name == "lost" or not ns:
            continue
        on_core = on_core_ns.get(name, 0)
        if on_core is None:
            return None
        away[name] = max(0, ns - on_core)
    return away


def together(parts: Iterable[dict[str, int] | None]) -> dict[str, int] | None:
    """Of several threads; None where it is not known of one."""
    total: dict[str, int] = {}
    for part in parts:
        if part is None:
            return None
        for name, ns in part.items():
            total[name] = total.get(name, 0) + ns
    return total


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


# Who is worth naming: a process that had a core for microseconds while another had it for seconds is not.


LEAST_SHARE = 0.01  # of what the one with most took; frontend/src/diagnosis.js has the same
FAULT_SHARE = (
    0.1  # of the time lost: who took less is named in the proof, not as the one at fault; there, too
)
OWN = "the job's own"  # of a thread of the process that lost the time


def at_fault(who: Sequence[Who], lost_ns: int) -> list[Who]:
    """Without programs that had little part in it."""
    total: dict[str, int] = {}
    for each in who:
        total[each.comm] = total.get(each.comm, 0) + each.ns
    return [each for each in who if not 0 < total[each.comm] < FAULT_SHARE * lost_ns]


def who_counts(who: Sequence[Who]) -> list[Who]:
    """Each process once, longest first, without those that took next to nothing."""
    total: dict[tuple[int | None, str, str | None], int] = {}
    for each in who:
        key = (each.pid, each.comm, each.container)
        total[key] = total.get(key, 0) + each.ns
    least = LEAST_SHARE * max(total.values(), default=0)
    found = [Who(pid, comm, ns, place) for (pid, comm, place), ns in total.items() if ns >= least]
    return sorted(found, key=lambda each: -each.ns)
