"""`ingero cost` as people see it."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.window import Container
from ingero.serve.cli.cost import Sum, rounded
from ingero.serve.cli.main import main
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, fixed_clock, process, thread, window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    place = Container(5, "/a", "a" * 64, "containerd", "train\x1b[31m-0", "team-a")
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        for at in range(10):
            now = at * SECOND + SECOND // 2
            gpus = GpuNews(
                (GpuCard(0, "NVIDIA H100"),),
                (GpuSample(0, now, 0.5),),
                (GpuProcess(0, now, 100, "python", None, 0.5),),
            )
            threads = [thread(pid=100, tid=100, gpu_wait=SECOND)]
            made = window(at * SECOND, gpus=gpus, threads=threads)
            made.processes, made.containers = [process(100, cgroup_id=5)], [place]
            writer.write(made)
    return path


def test_a_price_gives_money_and_the_arithmetic_is_shown(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", "--price", "360", "-d", str(path)]) == 0
    out = capsys.readouterr().out
    assert "team-a" in out
    assert "$1.00" in out
    assert "Held 10.0 s = busy 5.0 s + idle without a finding 5.0 s" in out
    assert "GPU busy 50.0 %" in out


@pytest.mark.parametrize("price", ["nan", "-1", "inf", "two"])
def test_what_is_no_price_is_refused(path: Path, capsys: pytest.CaptureFixture[str], price: str) -> None:
    assert main(["cost", "--price", price, "-d", str(path)]) == 2
    assert "--price" in capsys.readouterr().err


def test_without_a_price_it_says_so_and_shows_no_columns_of_money(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", "--by", "pod", "-d", str(path)]) == 0
    out = capsys.readouterr().out
    assert "No price for NVIDIA H100: give --price" in out
    assert not [column for column in ("Cost", "Saved", "Unknown") if column in out]
    assert "\x1b" not in out


@given(
    parts=st.lists(st.integers(0, 10**13), min_size=1, max_size=6),
    step=st.sampled_from([36 * SECOND, SECOND // 10]),
)
def test_parts_as_they_are_shown_sum_to_the_whole_as_it_is_shown(parts: list[int], step: int) -> None:
    shown = rounded(parts, step)
    assert sum(shown) == (sum(parts) + step // 2) // step
    assert all(abs(steps * step - ns) < step for steps, ns in zip(shown, parts, strict=True))


def test_columns_that_a_narrow_terminal_has_no_room_for_can_be_asked_for_as_it_says(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", "--wide", "-d", str(path)]) == 0
    assert " 1 H100 " in capsys.readouterr().out


def test_a_sum_that_is_too_long_ends_its_lines_before_a_term() -> None:
    out = StringIO()
    terms = ["Held 20.0 s", "= busy 12.6 s", "+ disk-wait 3.0 s", "+ idle without a finding 4.4 s"]
    Console(file=out, width=40).print(Sum(terms))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "Held 20.0 s = busy 12.6 s",
        "  + disk-wait 3.0 s",
        "  + idle without a finding 4.4 s",
    ]


def test_amounts_of_one_answer_have_as_many_digits_and_times_one_unit(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", "--price", "3.6", "-d", str(path)]) == 0
    out = capsys.readouterr().out
    assert "$0.0100" in out
    assert "$0.0000" in out
    assert not re.search(r"\d (min|h)\b", out)


def test_prices_come_from_the_configuration_and_json_has_every_number(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGERO_PRICES", "H100=720,A100=1")
    assert main(["cost", "--json", "-d", str(path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    total = answer["total"]
    assert total["money"] == pytest.approx(2.0)
    parts = ("busy_ns", "lost_ns", "idle_ns", "unknown_ns")
    assert total["held_ns"] == sum(total[part] for part in parts)


def test_a_tenant_that_is_not_there_is_an_error(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--namespace", "nope", "-d", str(path)]) == 1
    assert "team-a" in capsys.readouterr().err
