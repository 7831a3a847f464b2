"""What GPUs cost: every second is somebody's once, and the parts sum to what was held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.errors import TargetError, UsageError
from ingero.model.finding import Effect
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample, Prices
from ingero.model.window import Annotation, Container, Window
from ingero.serve.answers import cost as costs
from ingero.serve.answers.cost import CostAnswer, CostLine, get_cost
from ingero.serve.answers.cost_use import ROW
from ingero.serve.answers.efficiency import EfficiencyFacts, efficiency_of, facts_within
from ingero.serve.answers.query import Range
from ingero.serve.answers.whose import Whose
from ingero.serve.answers.window import time_range
from ingero.store.merge.result import merge
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, fixed_clock, process, split, thread, window
from tests.builders import finding as a_finding

LATER_NS = EPOCH_NS + 10**15
GIB = 1 << 30
MODEL = "NVIDIA H100 80GB HBM3"
TENANTS = [
    Container(5, "/a", "a" * 64, "containerd", "train-0", "team-a", None, (("owner", "Job/train"),)),
    Container(6, "/b", "b" * 64, "containerd", "serve-0", "team-b", None),
]


def second(at: int, *on: tuple[int, int, float | None], busy: dict[int, float | None]) -> Window:
    """On each GPU of `busy` so busy; `on`: GPU, process, and how busy that one kept it."""
    start = at * SECOND
    now = start + SECOND // 2
    return window(
        start,
        gpus=GpuNews(
            tuple(GpuCard(gpu, MODEL, f"GPU-{gpu}", memory_bytes=80 * GIB, sm_clock_max_mhz=2000)
                  for gpu in busy),
            tuple(GpuSample(gpu, now, share, sm_clock_mhz=1500, memory_used_bytes=20 * GIB)
                  for gpu, share in busy.items()),
            tuple(GpuProcess(gpu, now, pid, "python", 20 * GIB, share) for gpu, pid, share in on),
        ),
        processes=[process(100, cgroup_id=5), process(200, cgroup_id=6)],
        containers=TENANTS,
        threads=[thread(pid=100, tid=100, gpu_wait=SECOND)],
    )  # fmt: skip


def record(path: Path, *windows: Window, node: str = "n") -> Path:
    with Writer(path, node, fixed_clock(), OPERATIONS) as writer:
        for each in windows:
            writer.write(each)
    return path


def ask(path: Path, prices: Prices | None = None, **more: Any) -> CostAnswer:
    return get_cost(path, Range(), prices or Prices(), now_ns=LATER_NS, **more)


def sums_up(line: CostLine) -> bool:
    return line.held_ns == line.busy_ns + line.lost_ns + line.idle_ns + line.unknown_ns


def test_one_job_alone_holds_all_of_its_gpu(tmp_path: Path) -> None:
    path = record(tmp_path / "a", *(second(at, (0, 100, 0.6), busy={0: 0.6}) for at in range(10)))
    answer = ask(path, Prices(3.6))
    (line,) = answer.lines
    assert (line.name, answer.by, line.gpus) == ("team-a", "namespace", {"NVIDIA H100 80GB HBM3": 1})
    assert (line.held_ns, line.busy_ns) == (10 * SECOND, 6 * SECOND)
    assert sums_up(line)
    assert line.money == pytest.approx(0.01)
    assert line.efficiency.busy_share == pytest.approx(0.6)
    assert line.efficiency.clock_share == pytest.approx(0.75)
    assert line.efficiency.more_jobs == 0  # there is memory for three, but not the time for one


def test_a_shared_gpu_is_divided_by_use_and_equally_while_nobody_uses_it(tmp_path: Path) -> None:
    used = [second(at, (0, 100, 0.6), (0, 200, 0.2), busy={0: 0.8}) for at in range(4)]
    unused = [second(at, (0, 100, 0.0), (0, 200, 0.0), busy={0: 0.0}) for at in range(4, 8)]
    unknown = [second(at, (0, 100, None), (0, 200, 0.5), busy={0: 0.5}) for at in range(8, 10)]
    lines = {each.name: each for each in ask(record(tmp_path / "a", *used, *unused, *unknown)).lines}
    a, b = lines["team-a"], lines["team-b"]
    assert (a.held_ns, b.held_ns) == ((3 + 2 + 1) * SECOND, (1 + 2 + 1) * SECOND)
    assert a.busy_ns + b.busy_ns == pytest.approx((4 * 0.8 + 2 * 0.5) * SECOND, abs=2)
    assert sums_up(a)
    assert sums_up(b)


def test_gpus_that_nobody_holds_are_told_apart(tmp_path: Path) -> None:
    path = record(tmp_path / "a", *(second(at, (0, 100, 1.0), busy={0: 1.0, 1: 0.0}) for at in range(5)))
    answer = ask(path, Prices(1.0))
    assert answer.free is not None
    assert answer.free.held_ns == answer.total.held_ns == 5 * SECOND
    assert answer.free.processes == 0


def test_how_busy_it_was_may_be_unknown_and_is_not_idle_then(tmp_path: Path) -> None:
    path = record(tmp_path / "a", *(second(at, (0, 100, None), busy={0: None}) for at in range(5)))
    (line,) = ask(path).lines
    assert (line.unknown_ns, line.idle_ns, line.money) == (5 * SECOND, 0, None)
    assert line.efficiency.busy_share is None


@pytest.mark.parametrize(
    "by, names",
    [
        ("pod", {"team-a/train-0", "team-b/serve-0"}),
        ("owner", {"Job/train", costs.UNNAMED}),
        ("node", {"n"}),
        ("container", {"a" * 12, "b" * 12}),
    ],
)
def test_lines_can_be_told_apart_by_anything_and_always_sum_to_the_same(
    tmp_path: Path, by: str, names: set[str]
) -> None:
    on = ((0, 100, 0.1), (0, 200, 0.3))
    answer = ask(record(tmp_path / "a", *(second(at, *on, busy={0: 0.4}) for at in range(7))), by=by)
    assert {line.name for line in answer.lines} == names
    assert sum(line.held_ns for line in answer.lines) == answer.total.held_ns
    assert answer.total.held_ns == pytest.approx(7 * SECOND, abs=2)
    assert sums_up(answer.total)


def test_one_tenant_alone_can_be_asked_for(tmp_path: Path) -> None:
    path = record(
        tmp_path / "a", *(second(at, (0, 100, 0.5), (1, 200, 0.5), busy={0: 0.5, 1: 0.5}) for at in range(4))
    )
    answer = ask(path, whose=Whose(namespace="team-b"))
    assert [line.name for line in answer.lines] == ["team-b"]
    with pytest.raises(TargetError):
        ask(path, whose=Whose(namespace="team-x"))
    with pytest.raises(UsageError, match="group by"):
        ask(path, by="weather")


def test_a_tenants_process_is_not_taken_for_one_of_the_same_number_on_another_node(tmp_path: Path) -> None:
    parts = []
    for node, namespace in (("n1", "team-a"), ("n2", "team-b")):
        seen = [second(at, (0, 100, 1.0), busy={0: 1.0}) for at in range(2)]
        for each in seen:
            each.containers = [Container(5, "/a", "a" * 64, "containerd", "train-0", namespace)]
        parts.append(record(tmp_path / f"{node}.db", *seen, node=node))
    merged = tmp_path / "all.db"
    merge(parts, merged)
    whole, mine = ask(merged), ask(merged, whose=Whose(namespace="team-a"))
    assert whole.total.held_ns == 2 * mine.total.held_ns
    assert [line.name for line in mine.lines] == ["team-a"]


def test_without_the_driver_it_is_estimated_by_calls_and_said_to_be(tmp_path: Path) -> None:
    fed = thread(pid=100, tid=100, gpu_wait=SECOND * 3 // 4, host_cpu=SECOND // 4)
    fed["gap"] = split(host_cpu=SECOND // 4)
    more = {"processes": [process(100, cgroup_id=5)], "containers": TENANTS}
    feeding = [window(at * SECOND, threads=[fed], **more) for at in range(8)]
    answer = ask(record(tmp_path / "a", *feeding))
    (line,) = answer.lines
    assert (line.held_ns, line.busy_ns) == (8 * SECOND, 6 * SECOND)
    assert answer.estimated == ["n"]
    assert line.gpus == {"GPU": 1}


def test_a_gpu_is_not_busy_in_the_part_of_a_second_in_which_its_job_was_not_there(tmp_path: Path) -> None:
    fed = thread(pid=100, tid=100, gpu_wait=SECOND // 4, host_cpu=SECOND // 4)
    fed["gap"] = split(host_cpu=SECOND // 8)
    path = record(tmp_path / "a", window(0, threads=[fed], processes=[process(100)]))
    (line,) = ask(path).lines
    assert (line.held_ns, line.busy_ns) == (SECOND, SECOND * 3 // 8)


def test_where_nobody_says_which_gpu_it_was_each_process_has_its_own(tmp_path: Path) -> None:
    """What is held is never more than the GPUs that are shown could be held."""
    fed = [thread(pid=pid, tid=pid, gpu_wait=SECOND) for pid in (100, 200)]
    processes = [process(100, cgroup_id=5), process(200, cgroup_id=6)]
    feeding = [window(at * SECOND, threads=fed, processes=processes, containers=TENANTS) for at in range(3)]
    answer = ask(record(tmp_path / "a", *feeding))
    assert answer.total.held_ns == 6 * SECOND
    assert answer.total.gpus == {"GPU": 2}
    assert [line.gpus for line in answer.lines] == [{"GPU": 1}, {"GPU": 1}]


def test_pods_whose_long_names_end_differently_are_two_lines(tmp_path: Path) -> None:
    seen = second(0, (0, 100, 0.5), (0, 200, 0.5), busy={0: 1.0})
    pods = [f"{'p' * 250}-{number}" for number in range(2)]
    seen.containers = [
        Container(5 + number, f"/{number}", str(number) * 64, "containerd", pod, "n" * 63)
        for number, pod in enumerate(pods)
    ]
    answer = ask(record(tmp_path / "a", seen), by="pod")
    assert [line.name for line in answer.lines] == [f"{'n' * 63}/{pod}" for pod in pods]


def test_the_longest_part_of_a_models_name_has_the_price() -> None:
    prices = Prices(1.0, {"H100": 2.5, "H100 NVL": 3.0})
    assert prices.of("NVIDIA H100 80GB HBM3") == 2.5
    assert prices.of("NVIDIA H100 NVL") == 3.0
    assert prices.of("Tesla T4") == 1.0
    assert Prices(None, {"H100": 2.5}).of("Tesla T4") is None


# --- what findings are charged with -----------------------------------------------------------


def ledger(*findings: Any, idle: float = 0.4, seconds: int = 10) -> CostLine:
    rows = np.zeros(seconds, ROW)
    rows["process"], rows["at_ns"] = 1, EPOCH_NS + np.arange(seconds) * SECOND
    rows["held_ns"], rows["busy_ns"] = SECOND, (1 - idle) * SECOND
    rows["clock"] = rows["memory"] = np.nan
    person = costs._Person("node", 100, 0, 0, {"job": "j"})
    return costs._Ledger(rows, {1: person}, findings, {}, Prices(3.6), EfficiencyFacts()).line("j", rows)


def lost(kind: str, excess_ns: int, first: int = 0, last: int = 10, pid: int = 100) -> Any:
    span = (EPOCH_NS + first * SECOND, EPOCH_NS + last * SECOND)
    return a_finding(
        kind=kind, pid=pid, id=f"node:{kind}:{pid}:1", first_ns=span[0], last_ns=span[1], episodes=[span],
        effect=Effect("step", None, None, excess_ns, 0.2),
    )  # fmt: skip


def test_a_finding_is_charged_with_what_it_says_it_cost() -> None:
    line = ledger(lost("cpu-contention", 2 * SECOND))
    assert [(each.kind, each.ns) for each in line.lost] == [
        ("cpu-contention", pytest.approx(2 * SECOND, abs=2))
    ]
    assert line.idle_ns == pytest.approx(2 * SECOND, abs=2)
    assert line.money_lost == pytest.approx(0.002)
    assert sums_up(line)


def test_it_cannot_cost_more_than_its_gpu_was_idle_nor_outside_its_time() -> None:
    assert ledger(lost("cpu-contention", 9 * SECOND)).lost_ns == pytest.approx(4 * SECOND, abs=2)
    assert ledger(lost("disk-wait", 4 * SECOND, 0, 4)).lost_ns == pytest.approx(4 * 0.4 * SECOND, abs=2)


def test_findings_that_together_say_more_are_cut_in_proportion() -> None:
    line = ledger(lost("cpu-contention", 4 * SECOND), lost("disk-wait", 4 * SECOND))
    assert [each.ns for each in line.lost] == [pytest.approx(2 * SECOND, abs=2)] * 2
    assert line.idle_ns <= 2
    assert sums_up(line)


def test_the_neighbours_finding_is_not_charged_to_us() -> None:
    assert ledger(lost("cpu-contention", 2 * SECOND, pid=999)).lost == []


def test_what_something_costs_does_not_depend_on_how_lines_are_told_apart() -> None:
    """A dear GPU that works and a cheap one that is idle, of two pods of one tenant."""
    rows = np.zeros(20, ROW)
    rows["process"], rows["gpu"] = np.repeat([1, 2], 10), np.repeat([0, 1], 10)
    rows["at_ns"] = EPOCH_NS + np.tile(np.arange(10), 2) * SECOND
    rows["held_ns"], rows["busy_ns"] = SECOND, np.repeat([1.0, 0.2], 10) * SECOND
    rows["clock"] = rows["memory"] = np.nan
    people = {
        number: costs._Person("node", 100 * number, 0, 0, {"pod": f"p{number}", "namespace": "a"})
        for number in (1, 2)
    }
    models = {(0, 0): "H100", (0, 1): "T4"}
    prices = Prices(None, {"H100": 36.0, "T4": 3.6})
    told = costs._Ledger(
        rows, people, [lost("cpu-contention", 2 * SECOND, pid=200)], models, prices, EfficiencyFacts()
    )
    (whole,), pods = told.lines("namespace"), told.lines("pod")
    assert (whole.money, whole.money_busy) == (pytest.approx(0.11), pytest.approx(0.102))
    assert (whole.money_lost, whole.money_idle) == (pytest.approx(0.002), pytest.approx(0.006))
    for name in costs.MONEY:
        assert sum(getattr(line, name) for line in pods) == pytest.approx(getattr(whole, name))
    assert whole.lost[0].money == pytest.approx(whole.money_lost)
    total = costs._total(pods, told.gpus(rows), whole.efficiency)
    assert total.gpus == {"H100": 1, "T4": 1}
    dear = costs._Ledger(rows, people, [], models, Prices(None, {"H100": 36.0}), EfficiencyFacts())
    assert [line.money for line in dear.lines("pod")] == [pytest.approx(0.1), None]


def test_gpus_of_all_lines_are_counted_and_a_shared_one_once(tmp_path: Path) -> None:
    on = ((0, 100, 0.5), (1, 200, 0.5), (2, 100, 0.2), (2, 200, 0.2))
    answer = ask(record(tmp_path / "a", *(second(at, *on, busy={0: 0.5, 1: 0.5, 2: 0.4}) for at in range(4))))
    assert [line.gpus for line in answer.lines] == [{MODEL: 2}, {MODEL: 2}]
    assert answer.total.gpus == {MODEL: 3}


# --- how well it was used ---------------------------------------------------------------------


def steps(numbers: range, from_s: int = 0) -> list[tuple[int, int]]:
    return [(number, (from_s + at) * SECOND) for at, number in enumerate(numbers)]


@pytest.mark.parametrize(
    "seats",
    [
        {1: ("a", 0), 2: ("b", 0)},  # of the batch system, or of two commands
        {1: ("a", 0), 2: ("a", 0)},  # one command, twice at the same time
        {},  # no ranks
    ],
)
def test_jobs_of_one_group_do_not_do_each_others_steps_again(seats: dict[int, tuple[str, int]]) -> None:
    facts = EfficiencyFacts(steps={1: steps(range(60)), 2: steps(range(60), 5)}, seats=seats)
    found = efficiency_of(np.zeros(0, ROW), [1, 2], facts)
    assert (found.steps, found.goodput_share) == (120, 1.0)


def test_steps_done_again_after_a_restart_do_not_count() -> None:
    rows = np.zeros(0, ROW)
    said = {1: steps(range(60), 0), 2: steps(range(50, 100), 60)}
    facts = EfficiencyFacts(steps=said, seats={1: ("j", 0), 2: ("j", 0)})
    found = efficiency_of(rows, [1, 2], facts)
    assert (found.steps, found.goodput_share) == (110, pytest.approx(100 / 110))
    ranks = EfficiencyFacts(
        steps={1: steps(range(60)), 2: steps(range(60))}, seats={1: ("j", 0), 2: ("j", 1)}
    )
    assert efficiency_of(rows, [1, 2], ranks).goodput_share == 1.0
    assert efficiency_of(rows, [1], EfficiencyFacts()).goodput_share is None


def test_pace_is_against_its_own_best_hour_or_minute() -> None:
    rows = np.zeros(0, ROW)
    fast_then_slow = {minute: (100 if minute < 90 else 50) for minute in range(182)}
    long = efficiency_of(rows, [1], EfficiencyFacts(launches={1: fast_then_slow}))
    assert (long.pace_against, round(long.pace_share or 0, 2)) == ("hour", 0.75)
    short = efficiency_of(rows, [1], EfficiencyFacts(launches={1: {0: 5, 1: 100, 2: 50, 3: 2}}))
    assert (short.pace_against, short.pace_share) == ("minute", 0.75)
    assert efficiency_of(rows, [1], EfficiencyFacts(launches={1: {0: 5}})).pace_share is None


def test_minutes_in_which_a_job_launched_nothing_count_for_its_pace() -> None:
    """If they were recorded, and it was there."""
    stuck = {0: 9, 1: 100, 5: 100, 6: 100, 7: 9}
    rows = np.zeros(0, ROW)
    for recorded, share in ((range(20), 0.5), ((), 1.0), ((4, 5, 6, 7), 0.75)):
        facts = EfficiencyFacts(launches={1: stuck}, recorded=frozenset(recorded))
        assert efficiency_of(rows, [1], facts).pace_share == pytest.approx(share)


def test_when_it_was_recorded_is_read_for_the_pace(tmp_path: Path) -> None:
    path = record(tmp_path / "a", *(window(at * 60 * SECOND) for at in (0, 1, 3)))
    with Reader(path) as reader:
        minutes = facts_within(reader, time_range(reader, now_ns=LATER_NS)).recorded
    first = EPOCH_NS // (60 * SECOND)
    assert minutes == {first, first + 1, first + 3}


def held(*seats: tuple[int, int]) -> np.ndarray:
    """Rows of processes on GPUs, a tenth of the time and 10 GiB each."""
    rows = np.zeros(len(seats), ROW)
    rows["node"], rows["held_ns"], rows["busy_ns"], rows["clock"] = 1, SECOND, SECOND / 10, np.nan
    rows["process"], rows["gpu"] = np.array(seats).T
    rows["memory"] = 10 * GIB
    return rows


def room(*free: int) -> dict[tuple[int, int], tuple[float, float, float]]:
    """GPUs with memory for so many more processes of that size."""
    return {(1, gpu): (80.0 * GIB, (80.0 - 10 * each) * GIB, 0.1) for gpu, each in enumerate(free)}


@pytest.mark.parametrize(
    "seats, free, more",
    [
        ([(1, 0), (2, 1)], (3, 3), 3),  # one job of two ranks on two GPUs
        ([(1, 0), (2, 1)], (6, 0), 0),  # nothing on the second GPU
        ([(1, 0), (2, 1)], (6, 1), 1),
        ([(1, 0), (2, 0)], (3, 3), 2),  # both ranks on one GPU
    ],
)
def test_more_of_its_kind_are_jobs_and_not_ranks(
    seats: list[tuple[int, int]], free: tuple[int, int], more: int
) -> None:
    facts = EfficiencyFacts(seats={1: ("j", 0), 2: ("j", 1)}, gpus=room(*free))
    assert efficiency_of(held(*seats), [1, 2], facts).more_jobs == more
    facts = EfficiencyFacts(gpus=room(3, 3))
    assert efficiency_of(held((1, 0), (2, 1)), [1, 2], facts).more_jobs == 6  # two jobs of one process each


def test_steps_are_read_from_what_the_job_said(tmp_path: Path) -> None:
    said = [second(at, (0, 100, 0.5), busy={0: 0.5}) for at in range(4)]
    for at, each in enumerate(said):
        each.annotations = [Annotation(100, at * SECOND + 1, "step", str(min(at, 2)) if at < 3 else "1")]
    (line,) = ask(record(tmp_path / "a", *said)).lines
    assert (line.efficiency.steps, line.efficiency.goodput_share) == (4, 0.75)


def test_two_healthy_jobs_of_a_tenant_have_all_of_their_goodput(tmp_path: Path) -> None:
    said = [second(at, (0, 100, 0.5), (1, 200, 0.5), busy={0: 0.5, 1: 0.5}) for at in range(4)]
    for at, each in enumerate(said):
        each.processes = [
            process(pid, cgroup_id=5, rank=0, world_size=2, cmdline=f"python {name}.py")
            for pid, name in ((100, "one"), (200, "two"))
        ]
        each.annotations = [Annotation(pid, at * SECOND + 1, "step", str(at)) for pid in (100, 200)]
    (line,) = ask(record(tmp_path / "a", *said)).lines
    assert (line.efficiency.steps, line.efficiency.goodput_share) == (8, 1.0)
