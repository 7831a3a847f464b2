"""`ingero cost` as people see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.window import Container
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


def test_without_a_price_it_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--by", "pod", "-d", str(path)]) == 0
    out = capsys.readouterr().out
    assert "No price for NVIDIA H100: give --price" in out
    assert "\x1b" not in out


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
