"""What an agent holds at one moment: memory, descriptors, processes, kernel objects, disk.

Memory of the kernel is what the kernel itself charges for each map and program
(`memlock` in /proc/PID/fdinfo), each counted once however many descriptors show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from benchmarks.machine import cpu_s

_PRIVATE = re.compile(r"^Private_(?:Clean|Dirty|Hugetlb):\s+(\d+) kB", re.M)
_RESIDENT = re.compile(r"^Rss:\s+(\d+) kB", re.M)


class Sample(msgspec.Struct, frozen=True):
    """One look at an agent and the processes it has started."""

    at_s: float  # since the trace began
    rss_bytes: int
    uss_bytes: int  # its own pages alone: what would be free if it ended
    threads: int
    descriptors: int
    children: int  # its keepers, and theirs
    maps: int
    programs: int
    links: int
    kernel_bytes: int
    database_bytes: int  # with its log
    cpu_s: float
    jobs: int  # that run right now


class KernelObjects(msgspec.Struct, frozen=True):
    """What an agent and its children hold in the kernel, by the kernel's own numbers."""

    maps: dict[int, int]  # id: bytes
    programs: dict[int, int]
    links: frozenset[int]


def children(pid: int) -> list[int]:
    """Its children and their children."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found.extend(int(child) for child in task.read_text().split())
    return found + [grandchild for child in found for grandchild in children(child)]


def _infos(pid: int) -> Iterator[dict[str, str]]:
    with suppress(OSError):
        for info in list(Path(f"/proc/{pid}/fdinfo").iterdir()):
            with suppress(OSError):
                lines = info.read_text(errors="replace").splitlines()
                yield dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def kernel_objects(pids: list[int]) -> KernelObjects:
    maps: dict[int, int] = {}
    programs: dict[int, int] = {}
    links: set[int] = set()
    for info in (info for pid in pids for info in _infos(pid)):
        if "link_id" in info:
            links.add(int(info["link_id"]))
        elif "map_id" in info:
            maps[int(info["map_id"])] = int(info.get("memlock", 0))
        elif "prog_id" in info:
            programs[int(info["prog_id"])] = int(info.get("memlock", 0))
    return KernelObjects(maps, programs, frozenset(links))


def database_bytes(database: Path) -> int:
    total = 0
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):
            total += Path(f"{database}{end}").stat().st_size
    return total


def take(pid: int, database: Path, at_s: float, jobs: int) -> Sample:
    """Look now. An agent that is gone raises OSError."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    rss = _RESIDENT.search(rollup)
    others = children(pid)
    held = kernel_objects([pid, *others])
    return Sample(
        at_s=round(at_s, 1),
        rss_bytes=1024 * int(rss.group(1)) if rss else 0,
        uss_bytes=1024 * sum(map(int, _PRIVATE.findall(rollup))),
        threads=len(list(Path(f"/proc/{pid}/task").iterdir())),
        descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        children=len(others),
        maps=len(held.maps),
        programs=len(held.programs),
        links=len(held.links),
        kernel_bytes=sum(held.maps.values()) + sum(held.programs.values()),
        database_bytes=database_bytes(database),
        cpu_s=cpu_s(pid),
        jobs=jobs,
    )
