"""What explain reads from a recording, before anybody judges it."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ingero.errors import StoreError, TargetError, UsageError
from ingero.model import window as window_model
from ingero.model.gpus import GpuCard, GpuNews, GpuSample
from ingero.model.report import NotWatched, ProcessReport, Report, StepTime
from ingero.model.window import Container, SystemSample, Window
from ingero.serve.answers import explain
from ingero.serve.answers.diagnosis import Diagnosed
from ingero.serve.answers.explain import get_report, has_counted_findings
from ingero.serve.answers.query import Range
from ingero.serve.answers.report_processes import Extras
from ingero.serve.cli.as_text import write_text
from ingero.serve.cli.diagnosis import Verbosity, diagnosis
from ingero.serve.cli.per_process import breakdown
from ingero.serve.cli.tables import console
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    FakeTime,
    culprit,
    finding,
    in_flight,
    operation,
    process,
    thread,
    unexplained,
    wait,
    window,
)

LATER_NS = EPOCH_NS + 10**15


def recorded(path: Path, windows: Iterable[Window], node: str = "n1") -> Path:
    times = FakeTime()
    with Writer(path, node, times.clock(), OPERATIONS) as writer:
        for each in windows:
            assert writer.write(each) == ""
            times.advance(SECOND)
    return path


def helper(pid: int, tid: int, comm: str, **ns: int) -> Any:
    """A thread that feeds no GPU."""
    row = thread(pid, tid, comm, **ns)
    row["feeder"] = False
    return row


def second(at: int) -> Window:
    feeder = thread(100, gpu_wait=600_000_000, host_cpu=300_000_000, runqueue=100_000_000)
    feeder["voluntary_switches"], feeder["involuntary_switches"] = 7, 3
    return window(
        at * SECOND,
        threads=[
            feeder,
            helper(100, 101, "pin", lock_wait=SECOND),
            helper(300, 300, "worker", peer_wait=SECOND),
        ],
        operations=[operation("cudaLaunchKernel", [5_000] * 50), operation("cudaMemcpy", [90_000], bytes=64)],
        culprits=[
            culprit(100, 200, "stress", 60_000_000),
            culprit(100, 300, "worker", 40_000_000),
            culprit(100, 100, "python", 9_000_000),
            culprit(300, 200, "stress", 5_000_000),
            culprit(100, 0, "", 20_000_000, throttled=True),
        ],
        waits=[
            wait("runqueue", 30_000_000 + at, at_ns=at * SECOND + 5),
            wait("gpu_wait", 900_000_000, at_ns=at * SECOND + 6),
            wait("lock_wait", 800_000_000, at_ns=at * SECOND + 7, tid=101),
            wait(
                "peer_wait",
                70_000_000,
                at_ns=at * SECOND + 8,
                pid=300,
                waker_kind=1,
                waker_pid=100,
                waker="py",
            ),
        ],
        processes=[process(100, cgroup_id=5), process(300, comm="worker")] if at == 0 else [],
        containers=[Container(5, "/x", "c" * 64, "docker", "train-0", "ml")],
        losses={"ring_call": 2} if at == 1 else {},
        system=SystemSample(0.5 + at / 10, 0.25, 1, 4.0 + at, 8, 0, psi_cpu_some=0.1),
        hits=1000,
    )


@pytest.fixture(autouse=True)
def nobody_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "diagnosed", lambda *_: Diagnosed())


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return recorded(tmp_path / "x.db", [second(at) for at in range(3)])


def ask(path: Path, pid: int | None = None, **wanted: str) -> Report:
    return get_report(path, Range(**wanted), pid, LATER_NS)


def the(report: Report, pid: int) -> ProcessReport:
    (found,) = (each for each in report.processes if each.pid == pid)
    return found


def test_time_of_feeding_threads_sums_and_every_thread_sums_to_its_own(recording: Path) -> None:
    main = the(ask(recording), 100)
    assert {name: ns for name, ns in main.time.items() if ns} == {
        "gpu_wait": 1_800_000_000,
        "host_cpu": 900_000_000,
        "runqueue": 300_000_000,
    }
    assert sum(main.time.values()) == main.threads_ns == 3 * SECOND
    assert main.wall_ns == 3 * SECOND
    assert [(t.tid, t.feeder, t.ns) for t in main.threads] == [
        (100, True, 3 * SECOND),
        (101, False, 3 * SECOND),
    ]
    assert all(sum(t.time.values()) == t.ns for t in main.threads)
    assert (main.threads[0].voluntary_switches, main.threads[0].involuntary_switches) == (21, 9)


def shown(report: Report) -> str:
    out = io.StringIO()
    write_text(breakdown(report, Verbosity()), console(out))
    return out.getvalue()


def spinning(at: int) -> Window:
    """Nine tenths of a second in a synchronising call, most of it on a core."""
    row = thread(100, gpu_wait=900_000_000, host_cpu=50_000_000, memory_wait=40_000_000, sleep=10_000_000)
    row["spun_ns"], row["reclaiming_ns"] = 850_000_000, 30_000_000
    return window(at * SECOND, threads=row, operations=operation("cudaStreamSynchronize", [900_000_000]))


def test_off_cpu_time_leaves_out_waits_that_spin_on_a_core(tmp_path: Path) -> None:
    path = recorded(tmp_path / "spin.db", map(spinning, range(2)))
    report = get_report(path, Range())
    (job,) = report.processes
    expected = {"gpu_wait": 100_000_000, "memory_wait": 20_000_000, "sleep": 20_000_000}
    assert job.off_cpu == job.threads[0].off_cpu == expected
    assert job.time["gpu_wait"] == 1_800_000_000
    assert "140 ms of 2 s (7.0 %)" in shown(report)


def test_off_cpu_time_of_a_recording_without_it_is_not_known(tmp_path: Path) -> None:
    path = recorded(tmp_path / "old.db", map(spinning, range(2)))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for column in ("spun_ns", "reclaiming_ns"):
            connection.execute(f"ALTER TABLE thread_second DROP COLUMN {column}")
        connection.commit()
    report = get_report(path, Range())
    assert report.processes[0].off_cpu is None
    assert "Off-CPU:" in shown(report)
    assert "cannot be told from this recording" in shown(report)


def test_who_it_is_and_what_it_called(recording: Path) -> None:
    main = the(ask(recording), 100)
    assert (main.comm, main.cmdline, main.container) == ("python", "python train.py", "ml/train-0")
    calls = {line.op: line for line in main.operations}
    assert (calls["cudaLaunchKernel"].count, calls["cudaLaunchKernel"].exact) == (150, True)
    assert calls["cudaMemcpy"].bytes == 192
    assert calls["cudaLaunchKernel"].wall_share == pytest.approx(150 * 5_000 / (3 * SECOND))
    assert main.step is None
    assert main.gpu_idle_ns is None


def test_a_process_nobody_announced_is_called_like_its_thread(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.db", [window(0, threads=[thread(7, comm="trainer", host_cpu=SECOND)])])
    assert the(ask(path), 7).comm == "trainer"


def test_feeding_processes_come_first_then_workers_then_those_that_only_took_cores(recording: Path) -> None:
    assert [each.pid for each in ask(recording).processes] == [100, 300, 200]


def test_cores_taken_count_only_from_feeding_threads_of_other_processes(recording: Path) -> None:
    report = ask(recording)
    assert the(report, 200).cpu_taken_ns == 180_000_000
    assert the(report, 200).comm == "stress"
    assert the(report, 300).cpu_taken_ns == 120_000_000
    assert the(report, 100).cpu_taken_ns == 0


def test_the_worst_stall_is_a_feeders_and_neither_the_gpus_nor_wanted(recording: Path) -> None:
    stall = the(ask(recording), 100).worst_stall
    assert stall is not None
    assert (stall.bucket, stall.ns, stall.at_ns) == ("runqueue", 30_000_002, EPOCH_NS + 2 * SECOND + 5)
    assert "waiting for a core, while stress (200)" in stall.text
    other = the(ask(recording), 300).worst_stall
    assert other is not None
    assert other.text == "waiting for another process or thread; py (100) ended it"


def test_a_call_that_never_returned_is_a_stall(tmp_path: Path) -> None:
    windows = [second(at) for at in range(3)]
    windows[2].in_flight = in_flight(since_ns=SECOND // 2, now_ns=3 * SECOND)
    stall = the(ask(recorded(tmp_path / "x.db", windows)), 100).worst_stall
    assert stall is not None
    assert (stall.ns, stall.bucket) == (2_500_000_000, "gpu_wait")
    assert "in cudaStreamSynchronize, not returned" in stall.text


def test_the_machine_losses_and_hits_of_the_range(recording: Path) -> None:
    report = ask(recording)
    assert report.node == "n1"
    assert report.system.cpu_share == pytest.approx(0.6)
    assert (report.system.load1, report.system.cores, report.system.swap_bytes) == (6.0, 8, 0)
    assert report.system.psi == {"cpu_some": pytest.approx(0.1), "memory_some": None, "io_some": None}
    (loss,) = report.losses
    assert (loss.reason, loss.count, loss.from_ns) == ("ring_call", 2, EPOCH_NS + SECOND)
    assert report.overhead.hits_per_s == pytest.approx(1000)
    assert report.overhead.share is None
    assert report.recorded_ns == 3 * SECOND


def test_a_part_of_the_recording_is_only_that_part(recording: Path) -> None:
    report = ask(recording, since="1s")
    assert report.window.anchor == "last-record"
    assert report.window.from_ns == EPOCH_NS + 2 * SECOND + 1
    whole = get_report(recording, Range(start=str(EPOCH_NS // SECOND + 1)), None, LATER_NS)
    assert the(whole, 100).threads_ns == 2 * SECOND
    assert whole.losses
    assert whole.window.anchor == "given"


def test_a_range_longer_than_the_recording_says_what_is_missing(recording: Path) -> None:
    (blind,) = ask(recording, since="1h").not_watched
    assert "of 1 h" in blind.what
    assert "nothing was recorded" in blind.why
    assert ask(recording).not_watched == []


def test_one_process_is_asked_for_by_pid(recording: Path) -> None:
    assert [each.pid for each in ask(recording, pid=300).processes] == [300]
    with pytest.raises(TargetError, match="999") as told:
        ask(recording, pid=999)
    assert "100 (python)" in told.value.hint


def test_a_range_outside_the_recording_says_what_there_is(recording: Path) -> None:
    with pytest.raises(UsageError, match="nothing was recorded between 2033") as told:
        ask(recording, start="2033-01-01T00:00", end="2033-01-02T00:00")
    assert "covers 2023-11-14" in told.value.hint or "covers 2023-11-15" in told.value.hint


def test_an_empty_recording_is_called_empty(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is empty"):
        ask(recorded(tmp_path / "x.db", []))


def test_a_recording_without_cuda_is_no_error(tmp_path: Path) -> None:
    assert ask(recorded(tmp_path / "x.db", [window(0), window(SECOND)])).processes == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE recording SET cores = 'many'",
        "UPDATE process SET comm = x'1b5b324a', cmdline = 7, pid = 'x' || id, start_ns = 'long ago'",
        "UPDATE thread_second SET tid = 'x', comm_id = 'y', feeder = 'z', host_cpu_ns = 'w'",
        "UPDATE thread_second SET host_cpu_ns = 9000000000000000000",
        "UPDATE thread_second SET voluntary_switches = x'00', process_id = 'nobody'",
        "UPDATE event SET duration_ns = 'long', ts_ns = 'late', tid = x'00'",
        "UPDATE wait_detail SET bucket = 'x', runqueue_ns = 'y', waker_pid = 'z', waker_kind = 'k'",
        "UPDATE culprit SET pid = 'x', ns = 'y', comm_id = 5000",
        "UPDATE system_sample SET cpu_share = 'x', load1 = 'y', cores = 'z', swap_bytes = x'00'",
        "UPDATE window SET hits = 'x', end_ns = 'y'",
        "UPDATE op SET name = x'00', layer = id",
        "UPDATE loss SET count = 'x', start_ns = 'y'",
        "UPDATE container SET pod = 5, namespace = x'00'",
        "INSERT INTO not_watched SELECT id, 1, 'x', 'first calls', 7, 1700000001000000000 FROM node",
    ],
)
def test_a_damaged_recording_is_an_answer_or_an_error_never_a_crash(recording: Path, damage: str) -> None:
    with sqlite3.connect(recording) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(damage)
    connection.close()
    with contextlib.suppress(StoreError):
        report = ask(recording)
        assert msgspec.json.decode(msgspec.json.encode(report), type=Report)
        for make in (diagnosis, breakdown):
            write_text(make(report, Verbosity(verbose=True)), console(io.StringIO()))


def test_a_reused_pid_is_two_processes(tmp_path: Path) -> None:
    first, again = second(0), second(1)
    first.processes = [process(100, 1, end_ns=SECOND - 1)]
    again.processes = [process(100, SECOND + 10**8, comm="other")]
    again.waits = again.waits[:0]
    found = [each for each in ask(recorded(tmp_path / "x.db", [first, again])).processes if each.pid == 100]
    assert sorted(each.comm for each in found) == ["other", "python"]
    assert [sum(line.count for line in each.operations) for each in found] == [51, 51]


def test_operations_without_accounted_time_are_said_to_be_unaccounted(tmp_path: Path) -> None:
    report = ask(recorded(tmp_path / "x.db", [window(0, operations=[operation()])]))
    (blind,) = report.not_watched
    assert blind.why.startswith("no time was accounted")
    assert report.processes[0].threads_ns == 0
    assert np.isfinite(report.processes[0].operations[0].wall_share)


def late(*pids: int) -> list[window_model.Unwatchable]:
    why = "2.5 ms not watched: libcudart.so.12 was mapped before its probes were on"
    return [window_model.Unwatchable(pid, window_model.FIRST_CALLS, why) for pid in pids]


def test_calls_made_before_the_probes_were_on_are_said_first_and_not_called_estimates(tmp_path: Path) -> None:
    first = second(0)
    first.operations["estimated"][first.operations["pid"] == 100] = True
    first.not_watched = late(100)
    report = ask(recorded(tmp_path / "x.db", [first, second(1)]))
    assert report.not_watched[0].what == "the first calls of process 100"
    assert report.not_watched[0].why.startswith("2.5 ms not watched: libcudart.so.12")
    assert not any("estimates" in each.why for each in report.not_watched)
    assert not the(report, 100).operations[0].exact


def test_of_many_processes_with_missing_calls_some_are_named(tmp_path: Path) -> None:
    first = second(0)
    first.not_watched = late(*range(200, 220))
    told = [
        each.what for each in ask(recorded(tmp_path / "x.db", [first])).not_watched if "first" in each.what
    ]
    assert len(told) == 6
    assert told[-1] == "the first calls of 15 more processes"


def test_findings_are_sorted_and_belong_to_the_process_asked_for(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Diagnosed(
        [finding("low", "LOW"), finding("small", wall_share=0.26), finding("big"), finding("other", pid=300)],
        [unexplained(300)],
        [NotWatched("gil", "no")],
        Extras({100: StepTime("x", 5, 1, 2)}, {100: 77}),
    )
    monkeypatch.setattr(explain, "diagnosed", lambda *_: found)
    report = ask(recording)
    assert [each.title for each in report.findings] == ["big", "other", "small", "low"]
    assert (the(report, 100).step, the(report, 100).gpu_idle_ns) == (StepTime("x", 5, 1, 2), 77)
    assert report.not_watched == [NotWatched("gil", "no")]
    only = ask(recording, pid=100)
    assert [each.title for each in only.findings] == ["big", "small", "low"]
    assert only.unexplained == []


@pytest.mark.parametrize(
    ("severity", "counted"), [("CRITICAL", True), ("HIGH", True), ("MEDIUM", True), ("LOW", False)]
)
def test_the_exit_code_counts_medium_and_above(
    recording: Path, monkeypatch: pytest.MonkeyPatch, severity: str, counted: bool
) -> None:
    monkeypatch.setattr(explain, "diagnosed", lambda *_: Diagnosed([finding(severity=severity)]))
    assert has_counted_findings(ask(recording)) is counted


def test_the_system_names_every_card_with_means_and_its_worst(tmp_path: Path) -> None:
    card = GpuCard(0, "NVIDIA H200", "GPU-1", memory_bytes=141 << 30, sm_clock_max_mhz=1980)
    seen = [
        GpuSample(0, second * SECOND + 5, gpu_share=share, temperature_c=60 + second, reasons=reasons)
        for second, share, reasons in ((0, 0.25, 0x4), (1, 0.75, 0x40))
    ]
    path = recorded(
        tmp_path / "x.db",
        [
            window(0, threads=[thread(gpu_wait=SECOND)], gpus=GpuNews((card,), (seen[0],))),
            window(SECOND, threads=[thread(gpu_wait=SECOND)], gpus=GpuNews((), (seen[1],))),
        ],
    )
    answer = get_report(path, Range(), now_ns=LATER_NS)
    (found,) = answer.system.gpus
    assert (found.name, found.gpu_share, found.temperature_c) == ("NVIDIA H200", 0.5, 61)
    assert (found.memory_used_bytes, found.power_mw, found.lost) == (None, None, False)
    assert found.clock_reasons == ["sw_power_cap", "hw_thermal_slowdown"]
    out = io.StringIO()
    write_text(diagnosis(answer, Verbosity()), console(out))
    assert (
        "GPU 0: NVIDIA H200 | busy 50.0 % over the recording | Memory - of 141 GiB | Clock - | Power -"
        " | 61 °C" in out.getvalue()
    )


def test_without_counters_no_card_is_made_up(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.db", [window(0, threads=[thread(gpu_wait=SECOND)])])
    assert get_report(path, Range(), now_ns=LATER_NS).system.gpus == []
