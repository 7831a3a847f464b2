"""Windows added up into the live view."""

import numpy as np
import pytest

from ingero.capture.stacks import MAX_SHOWN
from ingero.model import histogram, layout
from ingero.model.finding import SourceLine
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.layout import Bucket
from ingero.model.operations import Operation
from ingero.model.stack import Frame, ResolvedStack
from ingero.model.window import OPERATION, THREAD_TIME, Process, Window
from ingero.scenarios import catalogue, synthetic
from ingero.serve import terminal
from ingero.serve.answers import live, live_history, live_lines
from ingero.serve.answers.live import LiveTotals

LAUNCH = Operation(1, "cuLaunchKernel", "driver", "launch")
SECOND = 1_000_000_000


def calls(pid: int, *took_ns: int, op: int = 1, errors: int = 0) -> np.ndarray:
    row = np.zeros(1, OPERATION)
    row["pid"], row["op"], row["count"], row["errors"] = pid, op, len(took_ns), errors
    row["sum_ns"], row["max_ns"] = sum(took_ns), max(took_ns)
    row["slots"][0] = np.bincount(histogram.slot_of(np.array(took_ns)), minlength=histogram.SLOTS)
    return row


def thread(pid: int, tid: int, feeder: bool = True, **buckets: int) -> np.ndarray:
    row = np.zeros(1, THREAD_TIME)
    row["pid"], row["tid"], row["feeder"], row["comm"] = pid, tid, feeder, b"python3"
    for name, ns in buckets.items():
        row["ns"][0][Bucket[name.upper()]] = ns
    return row


def window(second: int = 0, **parts: object) -> Window:
    return Window(second * SECOND, (second + 1) * SECOND, **parts)  # type: ignore[arg-type]


def test_counts_and_times_add_up_over_windows_and_processes() -> None:
    totals = LiveTotals([LAUNCH], "n1")
    totals.add(window(0, operations=calls(7, 5_000, 6_000), threads=thread(7, 7, cuda_cpu=SECOND)))
    totals.add(window(1, operations=calls(8, 5_000, 90_000, errors=1)))
    view = totals.view(now_ns=5, elapsed_ns=2 * SECOND)
    (row,) = view.operations
    assert (row.op, row.count, row.max_ns, row.errors) == ("cuLaunchKernel", 4, 90_000, 1)
    assert row.wall_share == pytest.approx(106_000 / SECOND)
    assert {process.pid for process in view.processes} == {7, 8}
    assert (view.events, view.events_per_s) == (4, 2.0)


def test_a_process_has_the_time_of_its_feeding_threads_and_it_sums_up() -> None:
    totals = LiveTotals([LAUNCH])
    threads = [
        thread(7, 7, gpu_wait=600_000_000, runqueue=400_000_000),
        thread(7, 9, host_cpu=SECOND),
        thread(7, 8, feeder=False, sleep=SECOND),
    ]
    totals.add(window(threads=np.concatenate(threads)))
    (process,) = totals.view(0, SECOND).processes
    assert process.time_ns == {"host_cpu": SECOND, "runqueue": 400_000_000, "gpu_wait": 600_000_000}
    assert process.threads_ns == sum(process.time_ns.values()) == 2 * SECOND
    assert process.wall_ns == SECOND
    assert [row.feeder for row in process.threads] == [True, False, True]


def test_a_reused_pid_is_another_process() -> None:
    totals = LiveTotals([LAUNCH])
    first, second = (Process(7, start, name, "", 1, 0) for start, name in ((10, "old"), (20, "new")))
    totals.add(window(0, processes=[first], operations=calls(7, 5_000, 5_000, 5_000)))
    totals.add(window(1, processes=[second], operations=calls(7, 5_000)))
    view = totals.view(0, 2 * SECOND)
    assert [(row.comm, row.operations[0].count) for row in view.processes] == [("new", 1)]
    assert view.operations[0].count == 4


def test_many_short_processes_are_forgotten_but_not_their_calls() -> None:
    totals = LiveTotals([LAUNCH])
    for pid in range(1, 1001):
        totals.add(window(operations=calls(pid, 5_000)))
    view = totals.view(0, SECOND)
    assert view.operations[0].count == 1000
    assert len(view.processes) == live.SHOWN_PROCESSES
    assert len(totals._processes) == live.PROCESSES


def test_only_calls_in_flight_for_a_second_are_listed_longest_first() -> None:
    rows = np.zeros(3, layout.THREAD_TOTALS)
    rows["now_ns"], rows["call_start_ns"] = 10 * SECOND, (9 * SECOND + 1, 8 * SECOND, 2 * SECOND)
    rows["call_op"], rows["open_bucket"] = (1, 1, 99), Bucket.GPU_WAIT
    rows["h"]["comm"] = b"\x1b[2Jpython3"
    totals = LiveTotals([LAUNCH])
    totals.add(window(in_flight=rows))
    found = totals.view(0, SECOND).in_flight
    assert [(call.op, call.duration_ns) for call in found] == [
        ("operation 99", 8 * SECOND),
        ("cuLaunchKernel", 2 * SECOND),
    ]
    assert found[0].comm == "python3"
    assert found[0].bucket == "gpu_wait"


def test_losses_are_kept_with_their_share() -> None:
    totals = LiveTotals([LAUNCH])
    totals.add(window(operations=calls(7, *[5_000] * 90), losses={"ring_call": 4}))
    totals.add(window(1, losses={"ring_call": 6}))
    view = totals.view(0, 2 * SECOND)
    assert view.losses == {"ring_call": 10}
    assert view.lost_share == 0.1


def test_a_long_tail_is_flagged_and_a_wide_but_even_one_is_not() -> None:
    totals = LiveTotals([LAUNCH, Operation(2, "cudaMalloc", "runtime", "alloc")])
    operations = [calls(7, *[10_000] * 50, 20_000), calls(7, *[100_000] * 30, 8_000_000, op=2)]
    totals.add(window(operations=np.concatenate(operations)))
    assert {row.op: row.flags for row in totals.view(0, SECOND).operations} == {
        "cuLaunchKernel": (),
        "cudaMalloc": ("p99",),
    }


def recorded(*calls_: tuple[int, int, int, int]) -> dict[str, object]:
    """Calls as (pid, stack, weight, ns), of one operation."""
    rows = np.zeros(len(calls_), layout.CALL)
    rows["op"] = 1
    for row, (pid, _, weight, ns) in zip(rows, calls_, strict=True):
        row["h"]["pid"], row["weight"], row["duration_ns"] = pid, weight, ns
    return {"calls": rows, "call_stacks": np.array([stack for _, stack, _, _ in calls_], np.int64)}


def at_line(number: int, line: int) -> ResolvedStack:
    library = Frame("python", "call", "/usr/lib/python3.12/site-packages/torch/x.py", 9)
    return ResolvedStack(number, (library, Frame("python", "step", "/job/train.py", line)))


def test_the_line_with_most_of_the_time_is_told_for_all_and_for_each_process() -> None:
    totals = LiveTotals([LAUNCH])
    operations = np.concatenate([calls(7, 5_000), calls(8, 5_000)])
    stacks = [at_line(1, 10), at_line(2, 20)]
    made = recorded((7, 1, 1, 90), (7, 2, 1, 10), (8, 2, 100, 1), (8, 2, 1, 100))
    totals.add(window(0, operations=operations, stacks=stacks, **made))
    totals.add(window(1, operations=operations, **recorded((8, 2, 1, 100))))
    view = totals.view(0, 2 * SECOND)
    assert view.operations[0].source == SourceLine("/job/train.py", 20, "step")
    assert view.operations[0].source_share == pytest.approx(310 / 400)
    by_pid = {row.pid: row.operations[0].source for row in view.processes}
    assert {pid: source and source.line for pid, source in by_pid.items()} == {7: 10, 8: 20}


def test_without_stacks_or_with_one_line_of_very_many_none_is_told() -> None:
    totals = LiveTotals([LAUNCH])
    totals.add(window(0, operations=calls(7, 5_000), calls=recorded((7, 0, 1, 5))["calls"]))
    assert totals.view(0, SECOND).operations[0].source is None
    many = recorded(*[(7, number, 1, 5) for number in range(1, 40)], (7, 99, 1, 50))
    stacks = [at_line(number, number) for number in range(1, 40)]
    totals.add(window(1, stacks=stacks, **many))
    assert totals.view(0, SECOND).operations[0].source is None


def test_what_is_kept_of_lines_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_lines, "STACKS", 10)
    totals = LiveTotals([LAUNCH])
    for number in range(1, 1001):
        made = recorded((7, number, 1, 5))
        totals.add(window(0, operations=calls(7, 5), stacks=[at_line(number, number)], **made))
    assert len(totals._lines._sources) == 10
    assert len(totals._calls[1].lines.ns) <= live_lines.LINES


def test_the_made_up_incident_names_its_culprits() -> None:
    totals = LiveTotals(synthetic.OPERATIONS)
    for each in synthetic.windows(catalogue.INCIDENT.story, 7, 0):
        totals.add(each)
    view = totals.view(0, 20 * SECOND)
    waiting = next(row for row in view.host if row.bucket == "runqueue")
    assert waiting.who[0].startswith("stress-ng-cpu 519")
    assert waiting.share == pytest.approx(0.25, abs=0.02)
    assert view.processes[0].culprits[0][0].startswith("stress-ng-cpu 519")
    assert sum(row.share for row in view.host) == pytest.approx(1)


def test_every_card_is_shown_as_last_seen() -> None:
    totals = LiveTotals([LAUNCH], "n1")
    cards = (GpuCard(0, "H200", memory_bytes=141 << 30), GpuCard(1, "H200"))
    hot = GpuSample(
        0, 5, gpu_share=0.9, sm_clock_mhz=900, power_mw=650_000, power_limit_mw=700_000, reasons=0x44
    )
    totals.add(window(0, gpus=GpuNews(cards, (hot, GpuSample(1, 5, gpu_share=0.1)))))
    totals.add(window(1, gpus=GpuNews((), (GpuSample(1, 6, lost=True),))))
    view = totals.view(now_ns=5, elapsed_ns=SECOND)
    first, second = view.cards
    assert (first.gpu_share, first.memory_bytes, first.held_by) == (0.9, 141 << 30, ("heat (hardware)",))
    assert (second.gpu_share, second.lost) == (None, True)
    shown = [line.plain for line in terminal.card_lines(view)]
    assert "| Mem - of 141 GiB | 900 MHz | 650 W of 700 | - | held by heat (hardware)" in shown[0]
    assert shown[1] == "GPU 1: does not answer"


def second_of(second: int, pid: int, **buckets: int) -> np.ndarray:
    row = thread(pid, pid, **buckets)
    row["window_ns"] = second * SECOND
    return row


def test_the_last_seconds_are_told_apart_from_the_whole_time() -> None:
    totals = LiveTotals([LAUNCH], recent=True)
    for second in range(live.LATELY + 3):
        bucket = "host_cpu" if second < 3 else "runqueue"
        named = [Process(7, 0, "train", "", 0, 0)] if not second else []
        spent = second_of(second, 7, **{bucket: SECOND})
        totals.add(window(second, operations=calls(7, 5_000), threads=spent, processes=named))
    view = totals.view(now_ns=1000 * SECOND, elapsed_ns=8 * SECOND, steps={7: "cuLaunchKernel"})
    assert view.lately is not None
    (now,) = view.lately.processes
    assert (now.comm, now.time_ns, now.operations[0].count) == ("train", {"runqueue": 5 * SECOND}, 5)
    assert view.processes[0].time_ns == {"host_cpu": 3 * SECOND, "runqueue": 5 * SECOND}
    seconds = view.seconds(7)
    assert [list(each.time_ns) for each in seconds] == [["host_cpu"]] * 3 + [["runqueue"]] * 5
    assert [each.steps_per_s for each in seconds] == [1.0] * 8
    assert seconds[-1].at_ns == 999 * SECOND
    assert view.seconds(7, 7)[-1].time_ns == {"runqueue": SECOND}


def test_history_is_bounded_and_costs_nothing_where_nobody_looks() -> None:
    totals = LiveTotals([LAUNCH], recent=True)
    for second in range(live_history.SECONDS + 5):
        totals.add(window(second, threads=second_of(second, 7, sleep=SECOND)))
    assert len(totals.view(0, 0).seconds(7)) == live_history.SECONDS
    for pid in range(live_history.TRACKS):
        totals.add(window(400, threads=thread(1000 + pid, 1, sleep=SECOND)))
    assert len(totals.view(0, 0).history) == live_history.TRACKS
    quiet = LiveTotals([LAUNCH])
    quiet.add(window(0, threads=thread(7, 7, sleep=SECOND)))
    assert (quiet.view(0, 0).history, quiet.view(0, 0).lately) == ((), None)


def test_a_card_is_beside_the_job_that_uses_it() -> None:
    totals = LiveTotals([LAUNCH], recent=True)
    news = GpuNews(
        samples=(GpuSample(0, 0, gpu_share=0.25), GpuSample(1, 0, gpu_share=0.75)),
        processes=(GpuProcess(1, 0, 7, "train"),),
    )
    both = np.concatenate([thread(7, 7, sleep=SECOND), thread(8, 8, sleep=SECOND)])
    totals.add(window(0, threads=both, gpus=news))
    view = totals.view(0, 0)
    assert view.seconds(7)[0].gpu_busy_share == 0.75
    assert view.seconds(8)[0].gpu_busy_share is None  # of two cards, and nobody says which


def test_a_line_is_remembered_as_long_as_its_stack_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert live_lines.STACKS >= MAX_SHOWN
    monkeypatch.setattr(live_lines, "STACKS", 3)
    book = live_lines.LineBook()
    book.learn([at_line(1, 1), at_line(2, 2), at_line(3, 3)])
    book.learn([at_line(1, 1)])  # told again, so it is the last one to go
    book.learn([at_line(4, 4), at_line(5, 5)])
    assert set(book._sources) == {1, 4, 5}
