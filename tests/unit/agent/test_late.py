"""Time between the mapping of a library and its probes."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np

from ingero.agent.missed_calls import MAX_PROCESSES, LateProbes, Row
from ingero.discover.libraries import Library, LibraryFinder, kind_of
from ingero.model.window import FIRST_CALLS, OPERATION, Unwatchable

MS = 1_000_000
RUNTIME, DRIVER = (os.makedev(8, 1), 5), (os.makedev(8, 1), 6)
NAMES = {1: "cudaMalloc", 2: "cuLaunchKernel", 3: "ncclAllReduce"}


def row(
    at_ms: float, pid: int = 7, address: int = 0x1000, inode: int = 5, path: str = "libcudart.so.12"
) -> Row:
    return pid, address, 0x1000, 8, 1, inode, int(at_ms * MS), f"/opt/{path}"


def library(path: str = "/opt/libcudart.so.12") -> Library:
    return Library("", path, *RUNTIME, "runtime", ((0x1000, 0x2000, 0),))


def late(on_ms: float | None = None, live: dict[int, Any] | None = None) -> LateProbes:
    """The runtime's probes are on since then; None: they never are."""
    files = {} if on_ms is None else {RUNTIME: SimpleNamespace(on_ns=int(on_ms * MS), kind="runtime")}
    session: Any = SimpleNamespace(files=files)
    return LateProbes(session, live or {}, lambda path, _: kind_of(path))


def told(found: LateProbes) -> list[str]:
    return [each.why for each in found.take_news()]


def test_a_library_that_is_probed_when_it_is_mapped_is_missing_nothing() -> None:
    found = late(on_ms=9)
    found.hear([row(at_ms=10)])
    found.attached(7, library(), adopted_ns=0)
    assert told(found) == []


def test_the_time_until_the_probes_are_on_is_told_once() -> None:
    found = late(on_ms=12.5)
    found.hear([row(at_ms=10)])
    found.attached(7, library(), adopted_ns=0)
    found.attached(7, library(), adopted_ns=0)
    found.ended(7, 50 * MS)
    why = "2.5 ms not watched: libcudart.so.12 was mapped before its probes were on"
    assert found.take_news() == [Unwatchable(7, FIRST_CALLS, why)]


def test_calls_before_a_process_was_admitted_are_missing_too() -> None:
    found = late(on_ms=5)
    found.hear([row(at_ms=10)])
    found.attached(7, library(), adopted_ns=14 * MS)
    assert told(found)[0].startswith("4 ms not watched")


def test_a_process_that_ended_before_anybody_looked_is_told_of() -> None:
    found = late()
    found.hear([row(at_ms=10), row(at_ms=10, address=0x9000, inode=9, path="libc.so.6")])
    found.ended(7, 13 * MS)
    assert told(found) == ["3 ms not watched: libcudart.so.12 was mapped until its end, never probed"]


def test_a_program_that_is_gone_may_have_had_a_runtime_inside_where_it_used_the_driver() -> None:
    for driver, missing in (("libcuda.so.1", 1), ("libm.so.6", 0)):
        files: Any = {DRIVER: SimpleNamespace(on_ns=1, kind="driver")} if missing else {}
        found = LateProbes(SimpleNamespace(files=files), {}, LibraryFinder().kind_at)  # type: ignore[arg-type]
        found.hear([row(at_ms=10, path="no/such/job"), row(at_ms=11, address=0x7000, inode=6, path=driver)])
        found.ended(7, 13 * MS)
        told_of = told(found)
        assert len(told_of) == missing
        assert all("/opt/no/such/job was gone" in each for each in told_of)


def test_news_of_a_mapping_may_come_after_that_of_the_end() -> None:
    found = late()
    found.ended(7, 13 * MS)
    found.hear([row(at_ms=10)])
    assert len(told(found)) == 1
    found.hear([row(at_ms=20)])  # a later process of that number
    assert told(found) == []


def test_a_short_process_whose_library_was_probed_ahead_is_missing_nothing() -> None:
    found = late(on_ms=9)
    found.hear([row(at_ms=10)])
    found.ended(7, 13 * MS)
    assert told(found) == []


def test_a_child_has_what_its_parent_mapped_until_it_executes() -> None:
    found = late(on_ms=12)
    found.hear([row(at_ms=10, pid=7), row(at_ms=11.5, pid=9, address=0x7000, inode=9, path="libc.so.6")])
    for child in (8, 9):
        found.forked(7, child, 11 * MS)
    found.executed(9)
    for child in (8, 9):
        found.ended(child, 20 * MS)
    assert [(each.pid, each.why.split()[:2]) for each in found.take_news()] == [(8, ["1", "ms"])]


def test_counts_that_lack_their_beginning_are_not_exact() -> None:
    found = late(on_ms=12)
    found.hear([row(at_ms=10)])
    found.attached(7, library(), adopted_ns=0)
    for exact in (False, True):  # only the first says so: the rest is counted in full
        operations = np.zeros(4, OPERATION)
        operations["pid"], operations["op"] = [7, 7, 7, 8], [1, 2, 3, 1]
        found.mark(operations, NAMES)
        assert (~operations["estimated"]).tolist() == [exact, True, True, True]


def test_strangers_are_forgotten_before_targets() -> None:
    found = late(live={1: None})
    found.hear([row(at_ms=1, pid=1)])
    found.hear([row(at_ms=1, pid=pid) for pid in range(2, MAX_PROCESSES + 10)])
    assert len(found._mapped) <= MAX_PROCESSES
    assert 1 in found._mapped
