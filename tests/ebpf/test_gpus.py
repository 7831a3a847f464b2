"""A trace on a machine whose cards are a library of our own, which nvidia-ml-py really loads."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ingero.scenarios import cuda
from tests import nvml
from tests.ebpf.real_runs import Place, json_lines, until
from tests.ebpf.tracing import WORKLOADS

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = pytest.mark.timeout(180)
STEPS_OF_A_SECOND = 250  # of 20 kernels of the stub, 200 us each


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def cards(tmp_path: Path) -> nvml.Cards:
    return nvml.Cards(tmp_path / "cards")


def traced(place: Place, library: Path, cards: nvml.Cards, seconds: int) -> dict[str, Any]:
    """A job of about so many seconds, traced from its start; what explain says about it."""
    words = [sys.executable, str(WORKLOADS / "busy.py"), "--steps", str(seconds * STEPS_OF_A_SECOND)]
    env = cards.environment | {"LD_LIBRARY_PATH": f"{library.parent}:{cuda.stub_dir()}"}
    done = place.ingero(
        "trace",
        "--max-overhead",
        "off",
        "--db",
        str(place.db),
        "--",
        *words,
        stdin=None,
        input="\n\n",
        env=env,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json_lines(place.ingero("explain", "-d", str(place.db), "--json").stdout)[0]
    return answer


def ask(place: Place, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(place.db)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_the_cards_are_recorded_beside_the_calls(place: Place, library: Path, cards: nvml.Cards) -> None:
    cards.set(cards=2, **{"1.gpu_percent": 7}).process(os.getpid(), 5 << 30, 0)
    answer = traced(place, library, cards, 16)
    first, second = answer["system"]["gpus"]
    assert (first["name"], first["gpu_share"], second["gpu_share"]) == ("Stub H200", 0.9, 0.07)
    assert (first["memory_bytes"], first["power_mw"], first["clock_reasons"]) == (150754820096, 500000, [])
    counts = dict(ask(place, "SELECT gpu_id, COUNT(*) FROM gpu_samples GROUP BY gpu_id"))
    assert counts[0] >= 3
    assert counts[0] == counts[1]
    (held,) = set(ask(place, "SELECT pid, memory_bytes FROM gpu_processes WHERE gpu_id = 0"))
    assert held == (os.getpid(), 5 << 30)
    assert ask(place, f"SELECT COUNT(*) FROM bystanders WHERE pid = {os.getpid()}") == [(1,)]
    assert "gpu-throttled" not in {each["what"] for each in answer["not_watched"]}


def test_a_card_held_down_by_heat_is_what_makes_a_gpu_bound_job_slow(
    place: Place, library: Path, cards: nvml.Cards
) -> None:
    cards.set(now_sm_clock=990, reasons=0x48, temperature=92)
    answer = traced(place, library, cards, 10)
    throttled = [each for each in answer["findings"] if each["kind"] == "gpu-throttled"]
    assert throttled, answer["findings"]
    assert "GPU 0 runs at 990 of 1980 MHz" in throttled[0]["title"]


def test_a_healthy_card_at_its_power_limit_is_not_blamed(
    place: Place, library: Path, cards: nvml.Cards
) -> None:
    cards.set(now_sm_clock=1400, reasons=0x4, power=700000)
    answer = traced(place, library, cards, 8)
    assert "gpu-throttled" not in {each["kind"] for each in answer["findings"]}


def test_a_driver_that_hangs_amid_a_trace_stops_nothing(
    place: Place, library: Path, cards: nvml.Cards
) -> None:
    def hang() -> None:
        until(place.db.exists, "the recording")
        time.sleep(3)
        cards.set(hang=1)

    hanging = threading.Thread(target=hang)
    hanging.start()
    answer = traced(place, library, cards, 48)
    hanging.join()
    assert any("not answered" in each["why"] for each in answer["not_watched"]), answer["not_watched"]
    (job,) = (process for process in answer["processes"] if process["operations"])
    launches = {line["op"]: line["count"] for line in job["operations"]}["cuLaunchKernel"]
    assert launches == 48 * STEPS_OF_A_SECOND * 20
    assert not answer["losses"]


def test_without_a_driver_the_reason_is_told(place: Place, library: Path, cards: nvml.Cards) -> None:
    cards.fail("nvmlInitWithFlags", 9)
    answer = traced(place, library, cards, 3)
    why = {each["what"]: each["why"] for each in answer["not_watched"]}
    assert why["gpu-throttled"] == "gpu is not recorded: NVML: Driver Not Loaded"
    assert answer["system"]["gpus"] == []
