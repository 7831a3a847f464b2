"""The metrics of a recording are those a trace told: every one that a recording can hold, with its value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.errors import TargetError
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample, Prices
from ingero.model.live import DatabaseStatus, LiveView
from ingero.model.metrics import ALL, BY_NAME, PREFIX, Distribution, Snapshot
from ingero.model.window import Container, SystemSample, Window
from ingero.scenarios import synthetic
from ingero.scenarios.catalogue import INCIDENT
from ingero.serve.answers.cost import get_cost
from ingero.serve.answers.metrics import Meter
from ingero.serve.answers.query import Range
from ingero.serve.answers.recorded_metrics import recorded_metrics
from ingero.store.merge.result import merge
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    FakeTime,
    block,
    call,
    in_flight,
    operation,
    process,
    thread,
    wait,
    window,
    xid,
)

RECORDED = {row.name.removeprefix(PREFIX) for row in ALL if not row.live_only}
# Of these a meter knows more than windows say: the live view tells it.
FROM_VIEW = {name for name in BY_NAME if name.startswith(("system.", "overhead", "lost.", "findings"))}
FROM_VIEW |= {
    "finding.lost_time",
    "call.in_flight",
    "targets",
    "gpu.lost.time",
    "gpu.idle_without_finding.time",
}
PRICES = Prices(2.5)
RECORDS = DatabaseStatus("x.db")
OWN = {"agent.last_window.timestamp", "build.info"}  # when it was asked, which version asked


def busy(at_s: int, gpu_reasons: int = 0) -> Window:
    start_ns = at_s * SECOND
    feeder = thread(gpu_wait=SECOND * 3 // 4, host_cpu=SECOND // 4)
    feeder["gap"][0, 1] = SECOND // 4
    return window(
        start_ns,
        operations=[
            operation("cuLaunchKernel", [5_000, 9_000], errors=1),
            operation("cudaMemcpy", [1_000] * 4, bytes=1_000),
            operation("cuMemcpyHtoDAsync_v2", [900], bytes=400, caller=1),
            operation("cudaMalloc", [1_000], bytes=64),
            operation("ncclAllReduce", [1_000] * 3, bytes=300),
        ],
        calls=[
            call("cudaMemcpy", at_ns=start_ns + 5, bytes=100, args=(0, 0, 0, 1)),
            call("cudaMemcpy", at_ns=start_ns + 9, bytes=100, args=(0, 0, 0, 2), weight=3),
        ],
        waits=[wait(at_ns=start_ns + 500)],
        blocks=[block(at_ns=start_ns + 700)],
        xids=[xid(79, at_ns=start_ns + 900)],
        threads=[feeder],
        in_flight=[in_flight(since_ns=SECOND // 2, now_ns=start_ns + SECOND)],
        processes=[process(comm="train", cgroup_id=9, rank=3, world_size=8)],
        containers=[Container(9, "/kube", "c0ffee", "containerd", "job-0", "ml")],
        losses={"ring_call": 3},
        system=SystemSample(0.5, 0.25, 1 << 30, 1.5, 8, 7, 0.1, None, None),
        hits=11,
        agent_cpu_ns=1_000_000,
        overhead_share=0.015,
        switches=1000,
        switches_ns=400_000,
        gpus=GpuNews(
            (GpuCard(0, "H200", "GPU-1", memory_bytes=1 << 37),),
            (
                GpuSample(
                    0, start_ns + 50, 0.5, 0.25, 1 << 30, 1980, 2619, gpu_reasons, 400_000, 700_000, 61,
                    ecc_corrected=2, ecc_uncorrected=0, power_capped_ns=1_000, heat_capped_ns=at_s,
                ),
            ),
            (GpuProcess(0, start_ns + 50, 100, "train", 4096, 0.25),),
        ),
    )  # fmt: skip


WINDOWS = [busy(0), busy(1, 0x4), busy(2), busy(3, 0x24)]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write(tmp_path / "x.db", *WINDOWS)


def write(path: Path, *windows: Window, node: str = "n") -> Path:
    time = FakeTime()
    with Writer(path, node, time.clock(), OPERATIONS, cores=8) as writer:
        writer.note({}, 900.0, 0.02)
        for each in windows:
            assert writer.write(each) == ""
        time.advance(max(each.end_ns for each in windows))
    return path


def told(path: Path, **more: Any) -> Snapshot:
    (found,) = recorded_metrics(path, Range(), **more)
    return found


def values(snapshot: Snapshot, name: str) -> dict[tuple[str, ...], Any]:
    def plain(value: Any) -> Any:
        return (
            (value.slots.tolist(), value.sum_ns, value.max_ns) if isinstance(value, Distribution) else value
        )

    return {point.labels: plain(point.value) for point in snapshot.points.get(name, [])}


def traced_incident(path: Path) -> Snapshot:
    """A job on a GPU that loses time to a finding, as a trace records and diagnoses it: its last metrics."""
    time = FakeTime()
    meter = Meter(synthetic.OPERATIONS, time.clock(), "n", prices=PRICES)

    def observe(diagnosis: LiveDiagnosis, last: bool = False) -> None:
        meter.observe(diagnosis.shown_in(LiveView(time.wall_ns, time.mono_ns, database=RECORDS)), last)

    with Writer(path, "n", time.clock(), synthetic.OPERATIONS, cores=synthetic.CORES) as writer:
        diagnosis = LiveDiagnosis(writer)
        for at, each in enumerate(synthetic.windows(INCIDENT.story, 7, 0)):
            share, now_ns = 0.3 if 8 <= at < 16 else 0.9, each.end_ns
            each.gpus = GpuNews(
                (GpuCard(0, "H200"),),
                (GpuSample(0, now_ns, share),),
                (GpuProcess(0, now_ns, synthetic.TRAINER, "python3", 1 << 30, share),),
            )
            time.advance(SECOND)
            meter.add(each)
            writer.write(each)
            diagnosis.consider(each.end_ns)
            observe(diagnosis)
        diagnosis.conclude()
        observe(diagnosis, last=True)
    return meter.snapshot()


def test_everything_of_the_list_that_a_recording_holds_is_told(recording: Path, tmp_path: Path) -> None:
    incident = tmp_path / "incident.db"
    traced_incident(incident)
    assert {*told(recording).points, *told(incident, prices=PRICES).points} == RECORDED
    assert {"gpu.memcpy", "gpu.allocated", "gpu.idle.time", "gpu.utilization"} <= RECORDED


def test_the_page_names_what_is_missing_and_why() -> None:
    page = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()
    missing = [row for row in ALL if row.live_only]
    assert missing
    assert all(f"| `{row.name}` | {row.live_only} |" in page for row in missing)


def test_values_are_those_the_trace_told(recording: Path) -> None:
    meter = Meter(OPERATIONS, FakeTime().clock(), "n", prices=PRICES)
    for each in WINDOWS:
        meter.add(each)
    live, recorded = meter.snapshot(), told(recording, prices=PRICES)
    compared = set(live.points) - FROM_VIEW - OWN
    assert len(compared) > 20
    for name in compared:
        expected = values(live, name)
        assert values(recorded, name) == (
            expected if name == "operation.duration" else pytest.approx(expected)
        ), name


def test_what_gpus_cost_is_the_same_while_tracing_and_later_and_what_the_command_says(tmp_path: Path) -> None:
    path = tmp_path / "incident.db"
    live = traced_incident(path)
    recorded, cost = told(path, prices=PRICES), get_cost(path, Range(), PRICES, by="process")
    (line,) = cost.lines
    expected = {
        "gpu.held.time": {(): line.held_ns / 1e9},
        "gpu.busy.time": {(): line.busy_ns / 1e9},
        "gpu.lost.time": {(each.kind,): each.ns / 1e9 for each in line.lost},
        "gpu.idle_without_finding.time": {(): line.idle_ns / 1e9},
        "gpu.cost": {("$",): line.money},
        "gpu.cost.lost": {(each.kind, "$"): each.money for each in line.lost},
    }
    assert line.lost_ns > 2 * SECOND
    for snapshot in (live, recorded):
        for name, values_of in expected.items():
            said = {labels[5:]: value for labels, value in values(snapshot, name).items() if value}
            assert said == pytest.approx(values_of), name


def test_the_machine_and_the_agent_are_told_as_they_were_at_the_end(recording: Path) -> None:
    found = told(recording)
    only = {name: dict.popitem(values(found, name))[1] for name in FROM_VIEW if found.points.get(name)}
    assert only["system.memory.available"] == 1 << 30
    assert only["overhead"] == pytest.approx(0.015)
    assert only["overhead.budget"] == pytest.approx(0.02)
    assert only["lost.events"] == 12
    assert only["targets"] == 1
    assert values(found, "call.in_flight") == {
        ("100", "train", "c0ffee", "job-0", "ml", "cudaStreamSynchronize"): 3.5
    }
    assert values(found, "agent.last_window.timestamp") == {(): (EPOCH_NS + 4 * SECOND) / 1e9}


def test_two_processes_with_one_number_have_each_their_points(tmp_path: Path) -> None:
    runs = [
        window(
            at_s * SECOND,
            operations=[operation("cuLaunchKernel", [5_000] * count)],
            processes=[process(100, at_s * SECOND, end_ns=end_ns)],
        )
        for at_s, count, end_ns in ((0, 2, None), (2, 3, 2 * SECOND + 7), (5, 4, None))
    ]
    found = told(write(tmp_path / "x.db", *runs)).points["operation.calls"]
    assert len({point.labels for point in found}) == 1
    assert [point.value for point in found] == [2, 3, 4]
    at = [(point.start_ns - EPOCH_NS, point.end_ns and point.end_ns - EPOCH_NS) for point in found]
    assert at == [(0, 2 * SECOND), (2 * SECOND, 2 * SECOND + 7), (5 * SECOND, None)]


def test_a_process_of_one_node_is_told_of_that_node(tmp_path: Path) -> None:
    one = write(tmp_path / "a.db", window(operations=[operation(pid=100)]), node="a")
    other = write(tmp_path / "b.db", window(operations=[operation(pid=200)]), node="b")
    merge([one, other], tmp_path / "all.db")
    assert told(tmp_path / "all.db", pid=200).node == "b"
    with pytest.raises(TargetError, match="300"):
        told(tmp_path / "all.db", pid=300)
