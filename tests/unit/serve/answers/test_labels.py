"""Answers by what jobs said: whose label holds, calls and time while it did."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero.errors import UsageError
from ingero.model.layout import Why
from ingero.model.report import Report
from ingero.model.window import Annotation, Window
from ingero.serve.answers.diagnosis import with_labels
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.label_time import BUCKETS, Placed, _cut, _Seconds
from ingero.serve.answers.labels import (
    Label,
    Span,
    _common,
    held,
    held_by_all,
    label_times,
    parse_label,
    parse_labels,
    union_ns,
)
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Range, ask_by_label, ask_statistics
from ingero.serve.answers.timeline import open_timeline
from ingero.serve.answers.tracks import Slice, Track
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    FakeTime,
    call,
    finding,
    process,
    thread,
    wait,
    window,
)

MS = 1_000_000
ALL = TimeRange(0, 2**62, "given")
Store = Callable[..., Path]


def said(at_ns: int, pid: int = 100, **labels: object) -> list[Annotation]:
    return [Annotation(pid, at_ns, key, str(value)) for key, value in labels.items()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    def stored(*windows: Window) -> Path:
        with Writer(tmp_path / "l.db", "n", FakeTime().clock(), OPERATIONS, cores=1) as writer:
            for each in windows:
                assert writer.write(each) == ""
        return tmp_path / "l.db"

    return stored


@contextlib.contextmanager
def reading(path: Path) -> Iterator[Reader]:
    with Reader(path) as reader:
        yield reader


def steps(*starts_ms: int) -> list[Annotation]:
    return [each for number, at in enumerate(starts_ms) for each in said(at * MS, step=number)]


def spans(path: Path, *wanted: str, by: str | None = None) -> dict[int, list[tuple[Any, ...]]]:
    with reading(path) as reader:
        pids = dict(reader.rows("SELECT id, pid FROM process"))
        found = held_by_all(reader, ALL, parse_labels(wanted).wanted, by)
    return {
        pids[process]: [((s.start_ns - EPOCH_NS) // MS, (s.end_ns - EPOCH_NS) // MS, s.value) for s in each]
        for process, each in found.items()
    }


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("step=120", Label("step", "120")),
        ("step=100..200", Label("step", None, 100, 200)),
        ("step=..200", Label("step", None, None, 200)),
        ("step=100..", Label("step", None, 100, None)),
        ("phase=warm up", Label("phase", "warm up")),
        ("file=a..b", Label("file", "a..b")),
    ],
)
def test_labels_are_read(text: str, label: Label) -> None:
    assert parse_label(text) == label


@pytest.mark.parametrize("text", ["", "step", "step=", "=1", "st ep=1"])
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read the label"):
        parse_label(text)


def test_a_label_holds_for_the_process_and_those_below_that_say_nothing(store: Store) -> None:
    family = [process(100), process(200, parent_pid=100), process(300, parent_pid=200), process(400)]
    path = store(window(processes=family, annotations=[*steps(0, 500), *said(100 * MS, pid=200, step=9)]))
    assert spans(path, "step=0..99") == {
        100: [(0, 500, "0"), (500, 1000, "1")],
        200: [(100, 1000, "9")],
        300: [(100, 1000, "9")],
    }


def test_a_range_takes_numbers_and_a_value_its_text(store: Store) -> None:
    path = store(window(annotations=[*steps(0, 100, 200), *said(300 * MS, step="last")]))
    assert spans(path, "step=1..2") == {100: [(100, 200, "1"), (200, 300, "2")]}
    assert spans(path, "step=last") == {100: [(300, 1000, "last")]}
    assert spans(path, "step=7..8") == {}


def test_several_labels_must_all_hold(store: Store) -> None:
    path = store(
        window(annotations=[*steps(0, 100, 200, 300), *said(150 * MS, epoch=1), *said(250 * MS, epoch=2)])
    )
    assert spans(path, "step=0..9", "epoch=1") == {100: [(150, 200, "1"), (200, 250, "2")]}
    assert spans(path, "step=1..2", by="epoch") == {100: [(150, 200, "1"), (200, 250, "1"), (250, 300, "2")]}


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=12), st.lists(st.integers(0, 60), max_size=12))
def test_where_two_hold_is_where_each_does(one: list[int], other: list[int]) -> None:
    def made(edges: list[int]) -> list[Span]:
        ordered = sorted(set(edges))
        return [Span(a, b, str(a)) for a, b in zip(ordered[::2], ordered[1::2], strict=False)]

    both = list(_common(made(one), made(other)))
    inside = {t for a, b, _ in made(one) for t in range(a, b)} & {
        t for a, b, _ in made(other) for t in range(a, b)
    }
    assert {t for a, b, _ in both for t in range(a, b)} == inside
    assert union_ns(both) == len(inside)


def test_a_key_nobody_said_is_an_error_that_names_those_that_were(store: Store) -> None:
    path = store(window(annotations=steps(0)))
    with reading(path) as reader, pytest.raises(UsageError, match="no job said its epoch") as error:
        held(reader, ALL, Label("epoch", "1"))
    assert error.value.hint == "Said were step."


def test_the_time_of_a_label_is_told_in_whole_seconds(store: Store) -> None:
    path = store(*(window(n * SECOND, annotations=said(n * SECOND + 400 * MS, step=n)) for n in range(4)))
    with reading(path) as reader:
        found = label_times(reader, ALL, [Label("step", "1")]).when
        assert (found.from_ns - EPOCH_NS, found.to_ns - EPOCH_NS) == (SECOND, 3 * SECOND)
        with pytest.raises(UsageError, match="was not set"):
            label_times(reader, ALL, [Label("step", "77")])


# --- calls ---------------------------------------------------------------------------


def by_step(path: Path, *wanted: str, **more: Any) -> dict[str, Any]:
    answer = ask_by_label(path, Range(), Filters(**more), 100, None, parse_labels(wanted, "step"))
    return {each.value: {row.op: row for row in each.operations} for each in answer.values}


def syncs(*at_ms: float, took_ns: int = 2 * MS, **more: Any) -> list[Any]:
    rare = int(Why.WHY_RARE)
    return [call("cudaStreamSynchronize", took_ns, at_ns=int(at * MS), why=rare, **more) for at in at_ms]


def test_calls_stored_one_by_one_belong_to_the_step_they_began_in(store: Store) -> None:
    path = store(window(calls=syncs(10, 99, 100, 150, 170, 950), annotations=steps(0, 100, 900)))
    found = by_step(path)
    assert {step: rows["cudaStreamSynchronize"].count for step, rows in found.items()} == {
        "0": 2,
        "1": 3,
        "2": 1,
    }
    row = found["1"]["cudaStreamSynchronize"]
    assert (row.exact, row.count_error, row.p50_ns, row.sum_ns) == (True, 0, 2 * MS, 6 * MS)
    assert row.wall_share == pytest.approx(6 / 800)


def test_calls_a_sample_stands_for_are_spread_and_the_error_said(store: Store) -> None:
    calls = [call("cuLaunchKernel", 1_000, at_ns=at * MS, weight=100) for at in (100, 200, 300, 400)]
    found = by_step(store(window(calls=calls, annotations=steps(0, 150, 350))))
    first, second = found["0"]["cuLaunchKernel"], found["1"]["cuLaunchKernel"]
    assert first.count == pytest.approx(150, abs=1)  # 1 + 99 + 49.5
    assert second.count == pytest.approx(200, abs=1)  # 2 + 49.5 + 99 + 49.5
    assert not first.exact
    assert first.count_error == 99  # those the sample at 200 ms stands for may all be its, or none
    assert second.count_error == 2 * 99


def test_no_call_is_spread_over_a_wait(store: Store) -> None:
    calls = [call("cuLaunchKernel", 1_000, at_ns=at * MS, weight=101) for at in (100, 900)]
    asleep = wait("sleep", 780 * MS, at_ns=110 * MS)
    found = by_step(store(window(calls=calls, waits=[asleep], annotations=steps(0, 105, 895))))
    # 20 ms were open between the two samples: 5 in the first, 10 in the second, 5 in the third
    counts = {step: rows["cuLaunchKernel"].count for step, rows in found.items()}
    assert counts["1"] == pytest.approx(50, abs=1)
    assert counts["2"] == pytest.approx(26, abs=1)
    assert sum(counts.values()) == pytest.approx(202, abs=2)


def test_statistics_while_a_label_held_are_of_all_its_steps_together(store: Store) -> None:
    path = store(window(calls=syncs(10, 110, 210, 310), annotations=steps(0, 100, 200, 300)))
    answer = ask_statistics(path, Range(), Filters(), 10, None, parse_labels(["step=1..2"]))
    (row,) = answer.operations
    assert (row.count, answer.recorded_ns) == (2, 200 * MS)


def test_statistics_and_diagnosis_of_a_label_are_of_the_same_time(store: Store) -> None:
    path = store(
        *(
            window(
                n * SECOND,
                processes=[process()],
                threads=[thread(gpu_wait=SECOND)],
                calls=syncs(n * 1000 + 500),
                annotations=said(n * SECOND + 400 * MS, phase="evaluate" if n in (1, 6) else "train"),
            )
            for n in range(9)
        )
    )
    labels = parse_labels(["phase=evaluate"])
    counted = ask_statistics(path, Range(), Filters(), 10, None, labels)
    told = get_report(path, Range(), labels=labels)
    assert (counted.window.from_ns, counted.window.to_ns) == (told.window.from_ns, told.window.to_ns)
    assert (told.window.from_ns - EPOCH_NS, told.window.to_ns - EPOCH_NS) == (SECOND, 8 * SECOND)
    assert counted.counted_from == told.window.anchor == "label"
    assert (counted.operations[0].count, counted.recorded_ns) == (2, 2 * SECOND)
    (paused,) = [each.what for each in told.not_watched if "label" in each.what]
    assert paused == "only the time with the label: it was set for 2 s of 7 s"
    never = parse_labels(["phase=none"])
    with pytest.raises(UsageError, match="was not set"):
        ask_statistics(path, Range(), Filters(), 10, None, never)
    with pytest.raises(UsageError, match="was not set"):
        get_report(path, Range(), labels=never)


def test_a_label_without_a_pause_is_all_of_its_diagnosis(store: Store) -> None:
    path = store(
        *(
            window(n * SECOND, threads=[thread(gpu_wait=SECOND)], annotations=said(n * SECOND, step=n // 2))
            for n in range(4)
        )
    )
    told = get_report(path, Range(), labels=parse_labels(["step=1"]))
    assert not [each for each in told.not_watched if "label" in each.what]


def test_a_process_is_not_counted_under_a_label_from_before_it_began(store: Store) -> None:
    people = [
        process(100),
        process(200, 600 * MS, parent_pid=100),
        process(300, parent_pid=100, end_ns=200 * MS),
    ]
    path = store(
        window(
            processes=people,
            threads=[
                thread(gpu_wait=SECOND),
                thread(pid=200, host_cpu=400 * MS),
                thread(pid=300, sleep=200 * MS),
            ],
            calls=[
                *syncs(50, 450, 650),
                call("cuLaunchKernel", 1_000, at_ns=700 * MS, weight=1000, pid=200),
                *syncs(100, pid=300),
            ],
            annotations=steps(0, 400, 500),
        )
    )
    answer = ask_by_label(path, Range(), Filters(), 100, None, parse_labels([], "step"))
    assert {each.value: each.pids for each in answer.values} == {
        "0": (100, 300),
        "1": (100,),
        "2": (100, 200),
    }
    assert {step: each.pids for step, each in times(path).items()} == {
        "0": (100, 300), "1": (100,), "2": (100, 200),
    }  # fmt: skip
    launches = by_step(path)["2"]["cuLaunchKernel"]
    assert launches.count == 1000


def test_ranks_of_one_step_are_counted_together_and_filtered(store: Store) -> None:
    ranks = [*steps(0, 500), *(Annotation(200, e.at_ns, e.key, e.value) for e in steps(100, 600))]
    path = store(window(calls=[*syncs(300), *syncs(300, pid=200)], annotations=ranks))
    row = by_step(path)["0"]["cudaStreamSynchronize"]
    assert (row.count, row.pids) == (2, (100, 200))
    assert by_step(path, pid=200)["0"]["cudaStreamSynchronize"].count == 1


# --- time ----------------------------------------------------------------------------


def times(path: Path, by: str = "step") -> dict[str, Any]:
    report = msgspec.json.decode(
        msgspec.json.encode(get_report(path, Range(), labels=parse_labels([], by))), type=Report
    )
    assert report.by is not None
    return {each.value: each for each in report.by.values}


def test_waits_and_calls_are_in_the_step_they_were_in_and_the_rest_is_spread(store: Store) -> None:
    path = store(
        window(
            processes=[process()],
            threads=[thread(sleep=300 * MS, gpu_wait=100 * MS, host_cpu=600 * MS)],
            waits=[wait("sleep", 300 * MS, at_ns=100 * MS)],
            calls=syncs(800, took_ns=100 * MS, time={"gpu_wait": 100 * MS}),
            annotations=steps(0, 500),
        )
    )
    found = times(path)
    assert found["0"].time == {"sleep": 300 * MS, "host_cpu": 200 * MS}
    assert found["1"].time == {"gpu_wait": 100 * MS, "host_cpu": 400 * MS}
    assert found["0"].located_share == pytest.approx(0.6)
    assert found["1"].located_share == pytest.approx(0.2)
    assert found["0"].took_ns == 500 * MS


def test_a_wait_across_two_steps_is_cut(store: Store) -> None:
    path = store(
        window(
            processes=[process()],
            threads=[thread(disk_wait=350 * MS, runqueue=50 * MS, host_cpu=600 * MS)],
            waits=[wait("disk_wait", 400 * MS, at_ns=300 * MS, runqueue_ns=50 * MS)],
            annotations=steps(0, 500),
        )
    )
    found = times(path)
    assert found["0"].time["disk_wait"] == 175 * MS
    assert found["1"].time["disk_wait"] == 175 * MS


def test_waits_from_before_the_first_call_are_not_spread_over_the_steps(store: Store) -> None:
    path = store(
        window(
            processes=[process()],
            threads=[thread(peer_wait=380 * MS, host_cpu=620 * MS)],
            calls=syncs(400, took_ns=1_000),
            annotations=[each for n, at in enumerate((450, 700)) for each in said(at * MS, step=n)],
        )
    )
    found = times(path)
    assert found["0"].time.get("peer_wait", 0) == 0
    assert found["0"].time["host_cpu"] == pytest.approx(250 * MS, rel=0.01)


def test_a_second_a_thread_was_watched_for_in_part_is_not_thinned_out(store: Store) -> None:
    first = window(threads=[thread(host_cpu=400 * MS)], processes=[process()], annotations=steps(600, 900))
    second = window(SECOND, threads=[thread(host_cpu=SECOND)])
    found = times(store(first, second))
    assert found["0"].time == {"host_cpu": 300 * MS}
    assert found["1"].time == {"host_cpu": 1100 * MS}


@st.composite
def busy_thread(draw: st.DrawFn) -> tuple[_Seconds, Placed, list[Span]]:
    """Two seconds, some waits and calls in them that need not fit, some steps."""
    ns = np.array(
        draw(
            st.lists(st.lists(st.integers(0, 90), min_size=BUCKETS, max_size=BUCKETS), min_size=2, max_size=2)
        )
    )
    seconds = _Seconds(np.array([0, 1000]), np.array([1000, 2000]), ns.astype(np.float64))
    edges = sorted(draw(st.sets(st.integers(0, 2000), max_size=8)))
    splits = st.lists(st.integers(0, 40), min_size=BUCKETS, max_size=BUCKETS)
    rows = [[*pair, *draw(splits)] for pair in zip(edges[::2], edges[1::2], strict=False)]
    placed = np.array(rows, np.int64).reshape(-1, 2 + BUCKETS)
    cuts = [0, *sorted(draw(st.sets(st.integers(1, 1999), max_size=6))), 2000]
    spans = [Span(start, end, str(start)) for start, end in itertools.pairwise(cuts)]
    return seconds, Placed(placed[:, 0], placed[:, 1], placed[:, 2:].astype(np.float64)), spans


@settings(deadline=None)
@given(busy_thread())
def test_steps_sum_to_the_seconds_they_fill_bucket_by_bucket(
    made: tuple[_Seconds, Placed, list[Span]],
) -> None:
    seconds, placed, spans = made
    total, known = _cut(seconds, placed, spans)
    assert total.sum(axis=0) == pytest.approx(seconds.ns.sum(axis=0))
    assert (total >= -1e-9).all()
    assert (known <= total.sum(axis=1) + 1e-6).all()


def test_findings_say_which_steps_they_touch(store: Store) -> None:
    path = store(window(processes=[process()], annotations=[*steps(0, 100, 200, 300), *said(0, epoch=3)]))
    lasted = (EPOCH_NS + 150 * MS, EPOCH_NS + 250 * MS)
    one = finding(first_ns=lasted[0], last_ns=lasted[1], pid=100, episodes=[lasted])
    with reading(path) as reader:
        (found,) = with_labels(reader, ALL, [one])
    assert [(each.key, each.first, each.last, each.count) for each in found.labels] == [
        ("epoch", "3", "3", 1),
        ("step", "1", "2", 2),
    ]


def test_findings_of_a_job_that_said_nothing_have_no_labels(store: Store) -> None:
    path = store(window(processes=[process(100), process(200)], annotations=steps(0)))
    one = finding(first_ns=EPOCH_NS, last_ns=EPOCH_NS + SECOND, pid=200, episodes=[])
    with reading(path) as reader:
        (found,) = with_labels(reader, ALL, [one])
    assert found.labels == []


def test_steps_are_slices_of_a_lane_of_their_process(store: Store) -> None:
    path = store(window(processes=[process()], annotations=[*steps(0, 100, 300), *said(0, epoch="\x1b[1m3")]))
    with open_timeline(path, Range()) as (_, items):
        found = list(items)
    lanes = {each.id: each.name for each in found if isinstance(each, Track)}
    drawn = [
        (lanes[each.track], each.name, (each.start_ns - EPOCH_NS) // MS, (each.end_ns - EPOCH_NS) // MS)
        for each in found
        if isinstance(each, Slice) and each.category == "label"
    ]
    assert drawn == [
        ("epoch", "epoch 3", 0, 1000),
        ("step", "step 0", 0, 100),
        ("step", "step 1", 100, 300),
        ("step", "step 2", 300, 1000),
    ]
