"""The machine a benchmark ran on, and what /proc says of a process there."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ingero.agent.starting import require_privileges
from ingero.errors import IngeroError
from ingero.units import clean

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Moment:
    """When, and how busy the machine was with other things."""

    at: str
    load1: float
    cpu_pressure: float | None  # percent of the last minute in which somebody waited for a core
    other_traces: int


def may_trace() -> bool:
    """Whether this process has the rights for it; says what is missing."""
    try:
        require_privileges()
    except IngeroError as error:
        print(f"error: {error.message}\n{error.hint}", file=sys.stderr)
        return False
    return True


def moment() -> Moment:
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Moment(at, os.getloadavg()[0], cpu_pressure(), other_traces())


def cpu_pressure() -> float | None:
    with suppress(OSError):
        found = re.search(r"^some .*avg60=([\d.]+)", Path("/proc/pressure/cpu").read_text())
        return float(found.group(1)) if found else None
    return None


def describe() -> dict[str, str]:
    """What a reader must know to compare; no host name."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.M)
    virtual = (
        " (a guest: a hypervisor shares its cores)"
        if re.search(r"^flags.*\bhypervisor\b", cpuinfo, re.M)
        else ""
    )
    kernel = re.match(r"\d+(?:\.\d+)+", platform.release())
    return {
        "processor": clean(model.group(1) if model else platform.machine(), 80) + virtual,
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "kernel": f"Linux {kernel.group(0) if kernel else platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
    }


def other_traces() -> int:
    """Processes that hold probes on libraries: they slow down what is measured here."""
    return sum(map(_holds_uprobes, Path("/proc").glob("[0-9]*/fdinfo")))


def _holds_uprobes(descriptors: Path) -> bool:
    with suppress(OSError):
        for info in descriptors.iterdir():
            with suppress(OSError):
                if re.search(r"^link_type:\t(uprobe|perf)", info.read_text(), re.M):
                    return True
    return False


def cpu_s(pid: int) -> float:
    """CPU seconds of all its threads so far, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_bytes(pid: int) -> tuple[int, int]:
    """Resident now, and at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = {name: int(kib) * 1024 for name, kib in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.M)}
    return found["VmRSS"], found["VmHWM"]


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Run this thread on one core: -1 is the last."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
