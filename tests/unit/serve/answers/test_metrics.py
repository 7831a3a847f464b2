"""The meter: everything is counted once, the number of series is bounded, unknown is absent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ingero.agent.diagnosis import EVERY_NS, REACH_NS
from ingero.detectors import LOOKED_FOR
from ingero.model.finding import Effect, Finding, Severity
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample, Prices
from ingero.model.live import (
    DatabaseStatus,
    LiveCall,
    LiveTarget,
    LiveView,
    Overhead,
    ProbeSource,
    SystemLine,
)
from ingero.model.metrics import ALL, BY_NAME, Distribution, SeriesLimits, Snapshot
from ingero.model.window import Container, Window
from ingero.serve.answers import gpu_metrics
from ingero.serve.answers.metrics import Meter
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    call,
    finding,
    fixed_clock,
    operation,
    process,
    thread,
    window,
    xid,
)

MINUTE = 60 * SECOND


def meter(**limits: int) -> Meter:
    return Meter(OPERATIONS, fixed_clock(), "n1", SeriesLimits(**limits))


def view(**more: Any) -> LiveView:
    return LiveView(EPOCH_NS + SECOND, SECOND, **{"database": DatabaseStatus("/x.db", 4096), **more})


def values(snapshot: Snapshot, name: str, *labels: str) -> dict[tuple[str, ...], Any]:
    """Of the series with all of these among their labels."""
    points = snapshot.points.get(name, [])
    return {point.labels: point.value for point in points if set(labels) <= set(point.labels)}


def total(snapshot: Snapshot, name: str) -> float:
    return sum(values(snapshot, name).values())


def test_calls_are_counted_with_their_durations_and_whose_they_are() -> None:
    made = meter()
    people = {
        "processes": [process(7, comm="train", cgroup_id=9, rank=3, world_size=8)],
        "containers": [Container(9, "/kube", "c0ffee", "containerd", "job-0", "ml")],
    }
    rows = [operation("cuLaunchKernel", [5_000, 9_000], pid=7, errors=1)]
    made.add(window(0, operations=rows, **people))
    made.add(window(SECOND, operations=rows))
    snapshot = made.snapshot()
    who = ("7", "train", "c0ffee", "job-0", "ml")
    assert values(snapshot, "operation.calls") == {(*who, "driver", "cuLaunchKernel"): 4}
    assert values(snapshot, "operation.errors") == {(*who, "driver", "cuLaunchKernel"): 2}
    (timed,) = values(snapshot, "operation.duration").values()
    assert isinstance(timed, Distribution)
    assert (int(timed.slots.sum()), timed.sum_ns, timed.max_ns) == (4, 28_000, 9_000)
    assert values(snapshot, "process.info") == {(*who, "3", "8", "containerd", ""): 1}


def test_a_pods_name_that_comes_later_is_on_every_series_from_then_on() -> None:
    made, rows = meter(), [operation("cuLaunchKernel", [5_000], pid=7)]
    known = process(7, cgroup_id=9, labels=(("job", "4711"),))
    made.add(window(0, operations=rows, processes=[known], containers=[Container(9, "/kube", "c0ffee")]))
    made.add(window(SECOND, containers=[Container(9, "/kube", "c0ffee", "containerd", "train-0", "ml")]))
    made.add(window(2 * SECOND, operations=rows))
    assert list(values(made.snapshot(), "operation.calls", "train-0", "ml").values()) == [1]
    assert values(made.snapshot(), "process.info", "4711", "train-0")


def test_time_of_feeding_threads_is_told_by_bucket() -> None:
    made = meter()
    helper = thread(tid=8, lock_wait=SECOND)
    helper["feeder"] = False
    feeder = thread(gpu_wait=SECOND * 3 // 4, host_cpu=SECOND // 4)
    feeder["gap"][0, 1] = SECOND // 4
    made.add(window(threads=[feeder, helper]))
    told = {labels[-1]: value for labels, value in values(made.snapshot(), "thread.time").items()}
    assert told == {"gpu_wait": 0.75, "host_cpu": 0.25}
    assert total(made.snapshot(), "gpu.idle.time") == 0.25


def test_bytes_have_a_direction_by_name_or_by_recorded_calls() -> None:
    made = meter()
    rows = [
        operation("cuMemcpyHtoDAsync_v2", [1000], bytes=100, pid=300),
        operation("cudaMemcpy", [1000] * 4, bytes=1000),
        operation("cudaMemcpy", [1000], bytes=11, pid=200),
        operation("cudaMalloc", [1000], bytes=64),
    ]
    calls = [
        call("cudaMemcpy", bytes=100, args=(0, 0, 0, 1 | 7 << 32)),  # an int: above it lies anything
        call("cudaMemcpy", bytes=100, args=(0, 0, 0, 2), weight=3),
    ]
    made.add(window(operations=rows, calls=calls))
    told = {(labels[0], labels[-1]): value for labels, value in values(made.snapshot(), "gpu.memcpy").items()}
    assert told == {("300", "HtoD"): 100, ("100", "HtoD"): 250, ("100", "DtoH"): 750, ("200", "unknown"): 11}
    assert total(made.snapshot(), "gpu.allocated") == 64


def test_bytes_of_a_runtime_call_and_of_the_driver_call_inside_it_are_counted_once() -> None:
    made = meter()
    rows = [
        operation("cudaMemcpy", [1000], bytes=1000),
        operation("cuMemcpyHtoDAsync_v2", [900], bytes=1000 + 64, caller=1),
    ]
    made.add(window(operations=rows))
    assert {labels[-1]: size for labels, size in values(made.snapshot(), "gpu.memcpy").items()} == {
        "HtoD": 1064
    }


def test_collectives_are_counted_with_their_bytes() -> None:
    made = meter()
    rows = [operation("ncclAllReduce", [1000] * 3, bytes=300), operation("ncclCommInitRank", [1000])]
    made.add(window(operations=rows))
    assert total(made.snapshot(), "collective.calls") == 3
    assert total(made.snapshot(), "collective.size") == 300


def test_more_processes_than_seats_are_counted_together_and_nothing_is_lost() -> None:
    made = meter(processes=4)
    for second in range(3):
        rows = [operation(pid=pid) for pid in range(100, 150)]
        threads = [thread(pid, gpu_wait=SECOND) for pid in range(100, 150)]
        made.add(window(second * SECOND, operations=rows, threads=threads))
    snapshot = made.snapshot()
    assert len(values(snapshot, "operation.calls")) == 5
    assert values(snapshot, "operation.calls", "other") == {
        ("", "other", "", "", "", "runtime", "cudaLaunchKernel"): 46 * 3
    }
    assert total(snapshot, "operation.calls") == 150
    assert total(snapshot, "thread.time") == 150
    assert len(values(snapshot, "process.info")) == 4


def test_more_operations_than_seats_are_counted_together() -> None:
    made = meter(operations=2)
    names = [each.name for each in OPERATIONS if each.layer == "runtime"]
    made.add(window(operations=[operation(name) for name in names]))
    told = {labels[-1]: value for labels, value in values(made.snapshot(), "operation.calls").items()}
    assert told == {names[0]: 1, names[1]: 1, "other": len(names) - 2}


def test_operations_of_the_start_make_room_for_those_that_follow() -> None:
    made = meter(operations=1)
    made.add(window(0, operations=[operation("cudaMalloc"), operation("cudaFree")]))
    made.add(window(MINUTE, operations=[operation("cudaLaunchKernel"), operation("cudaFree")]))
    told = {labels[-1]: value for labels, value in values(made.snapshot(), "operation.calls").items()}
    assert told == {"cudaLaunchKernel": 1, "other": 2}


def test_an_ended_process_leaves_after_a_while_and_no_counter_shrinks() -> None:
    made = meter(keep_ns=5 * MINUTE)
    made.add(window(0, operations=[operation(pid=1), operation(pid=2)]))
    made.add(window(5 * MINUTE, operations=[operation(pid=2)]))
    assert set(pids(made)) == {"1", "2"}
    made.add(window(6 * MINUTE, operations=[operation(pid=2)]))
    assert pids(made) == {"2": 3}


def test_a_seat_that_is_free_again_is_taken_from_zero_while_other_keeps_what_it_had() -> None:
    made = meter(processes=1, keep_ns=MINUTE)
    made.add(window(0, operations=[operation(pid=1), operation(pid=2)]))
    assert pids(made) == {"1": 1, "": 1}
    made.add(window(5 * MINUTE, operations=[operation(pid=2)]))
    assert pids(made) == {"2": 1, "": 1}


def pids(made: Meter) -> dict[str, float]:
    return {labels[0]: value for labels, value in values(made.snapshot(), "operation.calls").items()}


def test_a_number_that_is_used_again_or_another_program_begins_at_zero() -> None:
    made = meter()
    made.add(window(0, operations=[operation()], processes=[process(comm="bash")]))
    made.add(window(SECOND, operations=[operation()], processes=[process(comm="python")]))
    (labels,) = values(made.snapshot(), "operation.calls")
    assert labels[1] == "python"
    assert total(made.snapshot(), "operation.calls") == 1
    ended = process(comm="python", end_ns=SECOND)
    made.add(window(2 * SECOND, operations=[operation()], processes=[ended]))
    assert total(made.snapshot(), "operation.calls") == 2


def test_series_say_since_when_they_count() -> None:
    made = meter()
    made.add(window(0, operations=[operation(pid=1)]))
    made.add(window(9 * SECOND, operations=[operation(pid=2)]))
    since = {point.labels[0]: point.start_ns for point in made.snapshot().points["operation.calls"]}
    assert since == {"1": EPOCH_NS, "2": EPOCH_NS + 9 * SECOND}


def test_findings_are_counted_once_while_they_last_and_again_when_they_come_back() -> None:
    made = meter()
    later = EPOCH_NS + 100 * SECOND
    again = finding(first_ns=later, last_ns=later + SECOND)
    for findings in (
        (finding(),),
        (finding(wall_share=0.5),),
        (),
        (finding(),),
        (),
        (again,),
        (again, finding()),
    ):
        made.observe(view(findings=findings))
    snapshot = made.snapshot()
    assert values(snapshot, "findings", "cpu-contention", "HIGH") == {("cpu-contention", "HIGH"): 2}
    assert values(snapshot, "findings.found", "cpu-contention", "HIGH") == {("cpu-contention", "HIGH"): 2}
    assert values(snapshot, "finding.lost_time", "cpu-contention") == {
        ("100", "", "", "", "", "cpu-contention", "HIGH"): 0.4
    }


def test_series_are_there_before_they_are_more_than_zero() -> None:
    """Else a panel says that there is no data, and the first finding is no increase."""
    made = meter()
    made.observe(view())
    snapshot = made.snapshot()
    for name in ("findings", "findings.found"):
        found = values(snapshot, name)
        assert {kind for kind, _ in found} == set(LOOKED_FOR)  # of others nobody knows that there is none
        assert {severity for _, severity in found} == set(Severity)
        assert set(found.values()) == {0}
    assert values(snapshot, "lost.events", "ring_call") == {("ring_call",): 0}


def test_without_a_recording_it_is_not_known_whether_something_is_wrong() -> None:
    made = meter()
    made.observe(view(database=DatabaseStatus(), findings=(finding(),)))
    assert not {"findings", "findings.found", "database.size", "database.working"} & set(
        made.snapshot().points
    )


def test_what_the_machine_does_not_tell_is_absent() -> None:
    made = meter()
    made.observe(view(system=SystemLine(cpu_share=0.5)))
    told = {name for name in made.snapshot().points if name.startswith("system.")}
    assert told == {"system.cpu"}


@pytest.mark.parametrize("name", ['a"b\\c\n', "x" * 5000, "\x1b[31mred\u202e", "\ud800", "other"])
def test_a_hostile_name_becomes_a_short_plain_label(name: str) -> None:
    made = meter()
    made.add(window(operations=[operation()], processes=[process(comm=name)]))
    (labels,) = values(made.snapshot(), "operation.calls")
    assert len(labels[1]) <= 120
    assert labels[1].isprintable()
    labels[1].encode()


def gpu_news(at_ns: int, reasons: int = 0, **more: Any) -> GpuNews:
    card = GpuCard(0, "H200", "GPU-1", memory_bytes=100)
    told = {
        "gpu_share": 0.5, "memory_used_bytes": 40, "power_mw": 700_000, "power_limit_mw": 700_000,
        "temperature_c": 60, "sm_clock_mhz": 1980, "memory_clock_mhz": None, "power_capped_ns": SECOND // 2,
        "heat_capped_ns": None, "ecc_corrected": 3, "ecc_uncorrected": 0,
    }  # fmt: skip
    sample = GpuSample(0, at_ns, reasons=reasons, **(told | more))
    user = GpuProcess(0, at_ns, 100, "python", 30)
    return GpuNews((card,), (sample,), (user,))


def test_gpus_have_series_with_units_and_throttling_is_counted() -> None:
    made = meter()
    for second, reasons in enumerate((0x1, 0x4, 0x4, 0x1, 0x24)):
        made.add(window(second * SECOND, gpus=gpu_news((second + 1) * SECOND, reasons)))
    snapshot, card = made.snapshot(), ("0", "GPU-1", "H200")
    assert values(snapshot, "gpu.clock") == {(*card, "sm"): 1.98e9}
    assert values(snapshot, "gpu.power") == {card: 700.0}
    assert values(snapshot, "gpu.throttled.time") == {(*card, "power"): 2.5}
    began = values(snapshot, "gpu.throttle.events")
    assert (began[(*card, "power")], began[(*card, "heat")], began[(*card, "hardware")]) == (2, 1, 0)
    assert values(snapshot, "gpu.ecc.errors") == {(*card, "corrected"): 3, (*card, "uncorrected"): 0}
    assert values(snapshot, "gpu.process.memory") == {("100", "", "", "", "", "0"): 30}


def test_a_shared_gpus_time_is_divided_by_use_and_a_holder_that_does_nothing_has_its_series() -> None:
    made = meter()
    for at in range(4):
        now = at * SECOND + SECOND // 2
        on_it = (GpuProcess(0, now, 7, "a", None, 0.6), GpuProcess(0, now, 8, "b", None, 0.2))
        idle = (GpuProcess(1, now, 9, "c", None, 0.0),)
        samples = (GpuSample(0, now, 0.8), GpuSample(1, now, 0.0))
        made.add(window(at * SECOND, gpus=GpuNews((), samples, on_it + idle)))
    held, busy = (
        {labels[0]: round(value, 6) for labels, value in values(made.snapshot(), name).items()}
        for name in ("gpu.held.time", "gpu.busy.time")
    )
    assert held == {"7": 3.0, "8": 1.0, "9": 4.0}
    assert busy == {"7": 2.4, "8": 0.8, "9": 0.0}


def on_a_gpu(at_s: int, *pids: int, share: float | None = 0.6, name: str = "H200") -> Window:
    """A second in which they share a GPU equally."""
    now = at_s * SECOND + SECOND
    on_it = tuple(GpuProcess(0, now, pid, "python", None, 0.1) for pid in pids)
    return window(at_s * SECOND, gpus=GpuNews((GpuCard(0, name),), (GpuSample(0, now, share),), on_it))


def lost_to(kind: str, excess_ns: int, from_s: int, to_s: int, pid: int = 7) -> Finding:
    span = (EPOCH_NS + from_s * SECOND, EPOCH_NS + to_s * SECOND)
    return finding(
        kind=kind, pid=pid, id=f"n1:{kind}:{pid}", first_ns=span[0], last_ns=span[1], episodes=[span],
        effect=Effect("step", None, None, excess_ns, 0.2),
    )  # fmt: skip


def looked(at_s: int, *findings: Finding) -> LiveView:
    return view(findings=findings, looked_ns=EPOCH_NS + at_s * SECOND)


def by_kind(made: Meter, name: str) -> dict[str, float]:
    return {labels[5]: round(value, 6) for labels, value in values(made.snapshot(), name).items()}


def test_gpu_time_is_lost_to_kinds_of_findings_or_idle_without_one_and_has_its_price() -> None:
    made = Meter(OPERATIONS, fixed_clock(), "n1", prices=Prices(1.0, {"H200": 36.0}, "EUR"))
    for at_s in range(10):
        made.add(on_a_gpu(at_s, 7, 8))
    found = (lost_to("cpu-contention", SECOND, 0, 10), lost_to("disk-wait", 4 * SECOND, 2, 6))
    made.observe(looked(10, *found))
    assert by_kind(made, "gpu.lost.time") == {"cpu-contention": 0, "disk-wait": 0}
    assert total(made.snapshot(), "gpu.idle_without_finding.time") == 0
    made.observe(looked(10, *found), last=True)
    lost, money = by_kind(made, "gpu.lost.time"), by_kind(made, "gpu.cost.lost")
    assert sum(lost.values()) == pytest.approx(0.5 * 1.0 * 0.6 + 4 * 0.5 * 0.4)  # no more than was idle
    assert lost["disk-wait"] > lost["cpu-contention"] > 0
    assert money == pytest.approx({kind: ns * 0.01 for kind, ns in lost.items()}, abs=2e-6)
    (cost,) = values(made.snapshot(), "gpu.cost", "7", "EUR").values()
    assert cost == pytest.approx(0.05)
    idle = {
        labels[0]: value for labels, value in values(made.snapshot(), "gpu.idle_without_finding.time").items()
    }
    assert idle == {"7": pytest.approx(2.0 - sum(lost.values())), "8": pytest.approx(2.0)}


def test_a_second_is_counted_once_the_diagnosis_has_said_what_it_says_about_it() -> None:
    """It finds later that the GPU was idle for a reason, and takes back another one: counters only grow."""
    made, before = meter(), (0.0, 0.0)
    for at_s in range(300):
        made.add(on_a_gpu(at_s, 7, share=0.0))
        if at_s % 4 == 3:
            findings = [lost_to("gpu-idle", 60 * SECOND, 0, at_s)] if at_s < 20 else []
            if at_s >= 100:
                findings = [lost_to("disk-wait", (at_s - 50) * SECOND, 50, at_s + 1)]
            made.observe(looked(at_s + 1, *findings))
            told = by_kind(made, "gpu.lost.time")
            now = told.get("disk-wait", 0.0), total(made.snapshot(), "gpu.idle_without_finding.time")
            assert now >= before
            assert told.get("gpu-idle", 0.0) == 0.0
            assert sum(now) == pytest.approx(max(0, at_s + 1 - 120), abs=1e-6)
            before = now
    made.observe(looked(300, lost_to("disk-wait", 250 * SECOND, 50, 300)), last=True)
    assert by_kind(made, "gpu.lost.time")["disk-wait"] == pytest.approx(250, abs=1)
    assert total(made.snapshot(), "gpu.idle_without_finding.time") == pytest.approx(50, abs=1)
    assert not made._spent._waiting


def test_the_diagnosis_still_looks_at_what_is_counted() -> None:
    assert gpu_metrics.SETTLED_NS + 4 * EVERY_NS <= REACH_NS


def test_without_a_diagnosis_or_a_price_nothing_is_said_of_them_and_nothing_is_kept() -> None:
    made = Meter(OPERATIONS, fixed_clock(), "n1", prices=Prices(None, {"A100": 2.0}))
    for at_s in range(400):
        made.add(on_a_gpu(at_s, 7 if at_s < 20 else 8))
        made.observe(view(database=DatabaseStatus()))
    points = made.snapshot().points
    assert "gpu.held.time" in points
    assert not {"gpu.lost.time", "gpu.idle_without_finding.time", "gpu.cost", "gpu.cost.lost"} & set(points)
    assert [key[0] for key in made._spent._waiting] == [8]
    assert sum(map(len, made._spent._waiting.values())) <= 301


def test_where_the_gpu_does_not_tell_how_busy_it_is_nothing_is_idle() -> None:
    made = meter()
    made.add(on_a_gpu(0, 7, share=None))
    made.observe(looked(1, lost_to("disk-wait", SECOND, 0, 1)), last=True)
    points = made.snapshot().points
    assert "gpu.held.time" in points
    assert not {"gpu.busy.time", "gpu.lost.time", "gpu.idle_without_finding.time"} & set(points)


def test_a_gpu_nobody_heard_of_for_long_has_no_series() -> None:
    made = meter()
    made.add(window(0, gpus=gpu_news(SECOND)))
    made.add(window(MINUTE))
    counted = {"gpu.held.time", "gpu.busy.time"}  # of the process, not of the GPU: what was held was held
    assert not [name for name in made.snapshot().points if name.startswith("gpu.") and name not in counted]


def whole() -> Meter:
    """With a value for every row."""
    made = Meter(OPERATIONS, fixed_clock(), "n1", prices=Prices(2.5))
    busy = window(
        operations=[
            operation("cuLaunchKernel"), operation("cudaMalloc", bytes=5), operation("cudaMemcpy", bytes=5),
            operation("ncclAllReduce", bytes=5),
        ],
        threads=[thread(gpu_wait=SECOND)],
        xids=[xid()],
        processes=[process()],
    )  # fmt: skip
    made.add(busy)
    made.add(window(SECOND, gpus=gpu_news(2 * SECOND, 4, heat_capped_ns=1)))
    made.observe(
        view(
            findings=(finding(),),
            looked_ns=EPOCH_NS + SECOND,
            system=SystemLine(0.1, 0.2, 3, 0.4, 5, 6),
            targets=(LiveTarget(100, "python"),),
            probes=(ProbeSource("driver", 5),),
            losses={"ring": 3},
            overhead=Overhead(0.01, 0.02, taken_from_job_share=0.01, bystanders_share=0.001),
            in_flight=(LiveCall(100, 100, "python", "cudaStreamSynchronize", 9 * SECOND),),
        )
    )
    return made


def test_every_row_has_a_value_when_everything_is_known() -> None:
    points = whole().snapshot().points
    own = {"otlp.exports", "otlp.lost", "otlp.waiting"}  # the exporter's
    assert set(points) == set(BY_NAME) - own
    for name, series in points.items():
        assert all(len(point.labels) == len(BY_NAME[name].labels) for point in series), name
        assert len({point.labels for point in series}) == len(series), name


def test_the_same_snapshot_is_told_until_something_was_added() -> None:
    made = whole()
    before = made.snapshot()
    assert made.snapshot() is before
    made.add(window(2 * SECOND, operations=[operation()]))
    assert made.snapshot() is not before
    slots = next(iter(values(before, "operation.duration", "cuLaunchKernel").values())).slots
    assert int(np.asarray(slots).sum()) == 1  # what was told does not change


def test_names_are_unique_in_both_worlds() -> None:
    assert len({row.name for row in ALL}) == len({row.series for row in ALL}) == len(ALL)
    assert replace(ALL[0], kind=ALL[1].kind).series.endswith("_total")


def test_people_who_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero.serve.answers.metrics.PEOPLE", 10)
    monkeypatch.setattr("ingero.serve.answers.process_metrics.CONTAINERS", 10)
    book = meter()
    for pid in range(100, 200):
        there = [thread(pid=7), thread(pid=pid)]
        came = [process(pid=pid, cgroup_id=pid), *([process(pid=7)] if pid == 100 else [])]
        book.add(window(processes=came, containers=[Container(pid, f"/{pid}")], threads=there))
    assert len(book._people) <= 11
    assert len(book._people._containers) == 10
    assert 7 in book._people._processes
