"""The timeline: what was recorded, each thing on its track, in order and properly nested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero.model.gpus import GpuNews, GpuSample
from ingero.model.operations import KernelName
from ingero.model.window import SystemSample
from ingero.serve.answers.query import Range
from ingero.serve.answers.timeline import open_timeline
from ingero.serve.answers.tracks import Item, Lanes, Moment, Sample, Slice, Track, nested
from ingero.store.merge.result import merge
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    FakeTime,
    block,
    call,
    process,
    thread,
    wait,
    window,
    xid,
)
from tests.sites import resolved

Shown = tuple[dict[int, Track], list[Item]]


@pytest.fixture
def shown(tmp_path: Path) -> Callable[..., Shown]:
    def show(
        *windows, node: str = "n", db: Path | None = None, pid: int | None = None, **range_: str
    ) -> Shown:
        if db is None:
            db = tmp_path / "ingero.db"
            with Writer(db, node, FakeTime().clock(), OPERATIONS) as writer:
                for each in windows:
                    assert writer.write(each) == ""
        with open_timeline(db, Range(**range_), pid) as (_, items):
            found = list(items)
        return {item.id: item for item in found if isinstance(item, Track)}, found

    return show


def slices(shown: Shown, lane: str = "") -> list[Slice]:
    tracks, items = shown
    return [
        each for each in items if isinstance(each, Slice) and (not lane or tracks[each.track].name == lane)
    ]


def require_order(shown: Shown) -> None:
    """What every viewer needs: tracks before their items, time never back, slices nested."""
    tracks, items = shown
    known: set[int] = set()
    last: dict[int, int] = {}
    ends: dict[int, list[int]] = {}
    for item in items:
        if isinstance(item, Track):
            known.add(item.id)
            assert not item.parent or item.parent in known
            continue
        assert item.track in known
        at = item.start_ns if isinstance(item, Slice) else item.at_ns
        assert at >= last.get(item.track, 0)
        last[item.track] = at
        open_ends = ends.setdefault(item.track, [])
        while open_ends and open_ends[-1] <= at:
            open_ends.pop()
        if isinstance(item, Slice):
            assert item.end_ns >= item.start_ns
            assert not open_ends or item.end_ns <= open_ends[-1]
            open_ends.append(item.end_ns)
    assert len({(track.pid, track.tid) for track in tracks.values() if track.kind == "lane"}) == sum(
        track.kind == "lane" for track in tracks.values()
    )


def test_a_call_has_what_was_passed_and_what_came_back(shown: Callable[..., Shown]) -> None:
    made = shown(
        window(
            calls=[
                call("cudaMemcpy", 900, at_ns=50, bytes=4096, args=(0, 0, 4096, 1), stream=7, ret=2, gpu_id=1)
            ],
            processes=[process(rank=3)],
        )
    )
    require_order(made)
    (copied,) = slices(made)
    tracks = made[0]
    assert (copied.name, copied.category, copied.start_ns, copied.end_ns) == (
        "cudaMemcpy", "runtime", EPOCH_NS + 50, EPOCH_NS + 950,
    )  # fmt: skip
    arguments = dict(copied.arguments)
    assert arguments.pop("event") > 0
    assert arguments == {"bytes": 4096, "direction": "HtoD", "stream": 7, "ret": 2, "gpu_id": 1}
    thread_track = tracks[copied.track]
    assert (thread_track.kind, thread_track.name, thread_track.tid) == ("thread", "python 100", 100)
    assert tracks[thread_track.parent].name == "n rank 3 python"


def test_a_launch_has_its_kernel_and_what_called_it(shown: Callable[..., Shown]) -> None:
    launch = call("cuLaunchKernel", at_ns=10)
    launch["kernel"] = 1
    made = shown(
        window(
            calls=[launch, call("cudaFree", at_ns=900_000)],
            kernels={1: KernelName("void scale<4>(float*)")},
            waits=[wait("lock_wait", 2_000_000, at_ns=1_000_000, gil=1, holder_tid=101)],
            stacks=[resolved("forward train.py:142", 11)],
            call_stacks=np.array([11, 0], np.int64),
            wait_stacks=np.array([11], np.int64),
        )
    )
    launched, freed, waited = (dict(each.arguments) for each in slices(made))
    assert launched["kernel_name"] == "void scale<4>(float*)"
    assert str(launched["stack"]).splitlines()[0] == "cudaLaunchKernel (libcudart.so.12)"
    assert str(launched["stack"]).splitlines()[2:] == ["forward (train.py:142)", "main (train.py:1)"]
    assert {"kernel_name", "stack"} & freed.keys() == set()
    assert (waited["stack"], waited["lock held by thread"]) == (launched["stack"], 101)


def test_nested_calls_lie_inside_their_caller(shown: Callable[..., Shown]) -> None:
    inner = call("cuLaunchKernel", 50, at_ns=20, nested=True)
    made = shown(window(calls=[inner, call(took_ns=100, at_ns=10), call(took_ns=10, at_ns=200)]))
    require_order(made)
    assert [each.name for each in slices(made)] == ["cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchKernel"]


def test_a_wait_has_an_arrow_from_whoever_ended_it(shown: Callable[..., Shown]) -> None:
    ended = wait(
        "peer_wait", 5_000, at_ns=100, runqueue_ns=1_000, waker_kind=1, waker_pid=300, waker="worker"
    )
    by_interrupt = wait("disk_wait", 50, at_ns=9_000, waker_kind=3)
    made = shown(window(waits=[ended, by_interrupt], processes=[process()]))
    require_order(made)
    tracks, items = made
    assert [each.name for each in slices(made, "states")] == ["peer_wait", "disk_wait"]
    woken, wakes = [each for each in items if isinstance(each, Moment) and each.category == "wake"]
    assert woken.flows_in == wakes.flows_out != ()
    assert woken.at_ns == wakes.at_ns == EPOCH_NS + 4_100
    assert tracks[woken.track].name == "states"
    waker = tracks[tracks[wakes.track].parent]
    assert (waker.kind, waker.name, waker.pid) == ("thread", "worker 300", 300)


def test_every_second_of_a_thread_is_accounted(shown: Callable[..., Shown]) -> None:
    made = shown(
        window(threads=[thread(gpu_wait=600_000_000, host_cpu=400_000_000)]),
        window(SECOND, threads=[thread(host_cpu=SECOND)]),
    )
    require_order(made)
    seconds = slices(made, "accounted time, by second")
    assert [(each.name, each.end_ns - each.start_ns) for each in seconds] == [
        ("gpu_wait", SECOND), ("host_cpu", SECOND),
    ]  # fmt: skip
    assert dict(seconds[0].arguments) == {"host_cpu_ns": 400_000_000, "gpu_wait_ns": 600_000_000}


def test_ranks_of_a_collective_stand_under_each_other(shown: Callable[..., Shown]) -> None:
    calls = [
        call("ncclAllReduce", 10, at_ns=at, pid=100 + rank, comm_hash=0xABC, seq=seq, rank=rank, nranks=2)
        for seq, (first, second) in enumerate([(0, 400), (1000, 900)])
        for rank, at in enumerate((first, second))
    ]
    made = shown(window(calls=calls))
    require_order(made)
    found = [each for each in slices(made) if each.category == "collective"]
    named = {(made[0][each.track].name, each.name): each.end_ns - each.start_ns for each in found}
    assert named == {
        ("0000000000000abc rank    0 n", "ncclAllReduce #0"): 400,
        ("0000000000000abc rank    0 n", "ncclAllReduce #1"): 10,
        ("0000000000000abc rank    1 n", "ncclAllReduce #0"): 10,
        ("0000000000000abc rank    1 n", "ncclAllReduce #1"): 100,
    }


def test_requests_in_flight_at_once_have_a_lane_each(shown: Callable[..., Shown]) -> None:
    made = shown(window(blocks=[block(100, at_ns=at) for at in (0, 50, 120)]))
    require_order(made)
    assert [made[0][each.track].name for each in slices(made)] == ["disk 8:0 1", "disk 8:0 2", "disk 8:0 1"]


def test_counters_and_moments_of_the_machine(shown: Callable[..., Shown]) -> None:
    made = shown(window(xids=[xid(79, at_ns=5)], system=SystemSample(0.5, 0.25, 1 << 30, None, 8, 0)))
    require_order(made)
    tracks, items = made
    samples = {tracks[each.track].name: each.value for each in items if isinstance(each, Sample)}
    assert samples == {"CPU": 0.5, "memory": 0.25, "memory available": 1 << 30, "swap": 0}
    (fault,) = [each for each in items if isinstance(each, Moment)]
    assert dict(fault.arguments)["message"] == "GPU has fallen off the bus"
    assert tracks[tracks[fault.track].parent].name == "n machine"


def test_what_overlaps_the_range_is_in_it_and_nothing_else(shown: Callable[..., Shown]) -> None:
    windows = [window(at * SECOND, calls=[call(took_ns=10, at_ns=at * SECOND)]) for at in range(5)]
    windows.append(
        window(5 * SECOND, calls=[call("cudaMalloc", 4 * SECOND, at_ns=SECOND + 5)])
    )  # returned late
    start = EPOCH_NS // SECOND
    made = shown(*windows, start=str(start + 2), end=str(start + 4))
    require_order(made)
    assert [(each.name, (each.start_ns - EPOCH_NS) // SECOND) for each in slices(made)] == [
        ("cudaMalloc", 1), ("cudaLaunchKernel", 2), ("cudaLaunchKernel", 3),
    ]  # fmt: skip


def test_only_the_process_asked_for(shown: Callable[..., Shown]) -> None:
    made = shown(window(calls=[call(pid=100), call(pid=200)], threads=[thread(200, host_cpu=5)]), pid=200)
    assert {made[0][each.track].pid for each in slices(made)} == {200}


def test_processes_of_two_nodes_with_one_number_stay_apart(
    shown: Callable[..., Shown], tmp_path: Path
) -> None:
    for node in "ab":
        with Writer(tmp_path / f"{node}.db", node, FakeTime().clock(), OPERATIONS) as writer:
            writer.write(window(calls=[call()], threads=[thread(host_cpu=SECOND)]))
    merge([tmp_path / "b.db", tmp_path / "a.db"], tmp_path / "ab.db")
    made = shown(db=tmp_path / "ab.db")
    require_order(made)
    processes = [track for track in made[0].values() if track.kind == "process"]
    assert [track.name.split()[0] for track in sorted(processes, key=lambda each: each.order)] == ["a", "b"]
    assert sorted(track.name.partition(" ")[2] for track in processes) == ["python", "python pid 100"]
    assert len({track.pid for track in processes}) == 2
    assert shown(db=tmp_path / "ab.db") == made  # the order is the same every time


spans = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50)), max_size=30)


@given(spans)
def test_whatever_overlaps_is_made_to_nest(found: list[tuple[int, int]]) -> None:
    ordered = sorted(found, key=lambda span: (span[0], -span[1]))
    made = list(nested(Slice(1, start, start + took, "x", "") for start, took in ordered))
    assert [each.start_ns for each in made] == [start for start, _ in ordered]
    require_order(({1: Track(1, "thread", "", 0, 1, 1, 0)}, [Track(1, "thread", "", 0, 1, 1, 0), *made]))


@given(spans)
def test_lanes_never_overlap_and_are_as_few_as_possible(found: list[tuple[int, int]]) -> None:
    lanes = Lanes()
    taken: dict[int, int] = {}
    for start, took in sorted(found):
        lane = lanes.take(start, start + took)
        assert taken.get(lane, 0) <= start
        taken[lane] = start + took
    busiest = max((sum(a <= at < a + max(t, 1) for a, t in found) for at in range(151)), default=0)
    assert len(taken) <= max(busiest, 1)


def test_every_card_has_its_counters_and_what_it_does_not_tell_has_none(shown: Callable[..., Shown]) -> None:
    samples = (
        GpuSample(0, SECOND // 2, gpu_share=0.5, sm_clock_mhz=1980),
        GpuSample(1, SECOND // 2, power_mw=650_000),
    )
    tracks, items = shown(window(gpus=GpuNews((), samples)))
    counted = {tracks[each.track].name: each.value for each in items if isinstance(each, Sample)}
    assert counted == {"GPU 0: busy": 0.5, "GPU 0: SM clock": 1980, "GPU 1: power": 650_000}
