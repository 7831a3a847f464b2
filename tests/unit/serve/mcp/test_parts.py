"""Kernels and lines of code as an assistant reads them."""

from __future__ import annotations

from ingero.model.gpus import Prices
from ingero.model.report import CodeLine
from ingero.model.words import bucket_words
from ingero.serve.answers.cost import CostAnswer, CostLine, LostTo
from ingero.serve.answers.efficiency import Efficiency
from ingero.serve.answers.kernels import KernelsAnswer, KernelStats
from ingero.serve.answers.query import WindowAnswer
from ingero.serve.cli.diagnosis import time_rows
from ingero.serve.mcp import rendering
from ingero.serve.mcp.bounds import BRIEF, code_lines
from ingero.serve.mcp.parts import cost_part, kernel_parts
from tests.builders import process_report


def kernels(*stats: KernelStats) -> KernelsAnswer:
    launches = sum(each.launches for each in stats)
    return KernelsAnswer(0, 1, "recording", 1, launches, 0.75 if launches else None, list(stats), [])


def test_kernels_have_their_short_name_marked_and_the_nameless_a_share() -> None:
    found = kernel_parts(
        kernels(
            KernelStats(
                "n", 100, "python", "void «scale»<4>(float*)", "«scale»", True, 75, 0.75, 6_000, 9_000
            ),
            KernelStats("n", 100, "python", None, None, False, 25, 0.25, 5_000, 9_000),
        )
    )
    assert found == {
        "kernels": [
            {
                "kernel": "«'scale'»",
                "pid": 100,
                "launches": 75,
                "share_of_launches": "75.0 %",
                "launch_call_p50": "6 µs",
            }
        ],
        "launches_with_a_kernel_name": "75.0 %",
    }


def test_kernels_that_were_not_looked_for_are_said_to_be() -> None:
    assert "too many calls" in kernel_parts(None)["kernels"]
    assert kernel_parts(kernels()) == {}


def test_the_heaviest_lines_of_each_kind_come_first() -> None:
    lines = process_report().lines
    more = [CodeLine("call", "/a.py", at, "f", at, 1, 0.1, op="cudaFree") for at in range(1, 9)]
    found = code_lines([*more, *lines], full=False)
    assert list(found) == ["calls", "on_a_core", "waits", "holds_the_gil"]
    assert len(found["calls"]) == BRIEF
    assert found["calls"][0] == "«forward() at /home/a/train.py:142»: 3 s, 80.0 % of cudaMemcpy, 290 calls"
    assert found["on_a_core"] == [
        "«load() at /home/a/data.py:7»: 2 s, 50.0 % of thread 100, 25.0 % collecting garbage"
    ]
    assert "disk_wait" in found["waits"][0]
    assert "others waited 1 s" in found["holds_the_gil"][0]
    assert len(code_lines([*more, *lines], full=True)["calls"]) == 9
    assert code_lines([], full=True) == {}


def test_time_is_rounded_as_everywhere_else() -> None:
    time = {"peer_wait": 1, "host_cpu": 1, "gpu_wait": 1, "sleep": 0}  # each 33.33 %: together they are 100
    shown = {row[0]: row[2] for row in time_rows(time).rows}
    told = rendering.time_shares(time)
    assert {bucket_words(bucket): share for bucket, share in told.items()} == shown
    assert sorted(told.values()) == ["33.3 %", "33.3 %", "33.4 %"]
    assert rendering.time_shares({"peer_wait": 999, "sleep": 1}) == {"peer_wait": "99.9 %"}
    assert rendering.time_shares({}) == {}


def test_costs_are_told_with_times_and_money_and_the_tenants_name_is_marked() -> None:
    lost = [LostTo("cpu-contention", 10**9, 0.5)]
    times = (4 * 10**9, 2 * 10**9, lost, 10**9, 10**9, 0)
    line = CostLine("«team»", 1, {"H100": 1}, *times, 2.0, 1.0, 0.5, 0.5, Efficiency(0.5))
    answer = CostAnswer(WindowAnswer(0, 1), "now", 1, "namespace", Prices(1.0), [], [], [line], line, None)
    found = cost_part(answer, 10)
    assert found["answer"] == "1 s of 4 s of GPU time were lost to findings, worth $0.5000"
    (told,) = found["lines"]
    assert (told["who"], told["lost"]) == ("«'team'»", {"cpu-contention": "1 s"})
    assert told["clock_share"] == "-"
